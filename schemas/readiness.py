"""How a machine is made ready before an agent's first activation."""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from schemas.base import Frozen
from schemas.values import Seconds

PROXY_PORT: Final = 8090
"""Where a machine with a list of hosts finds the proxy to them."""


class Install(Frozen):
    """A command that runs once in each new machine, before the agent: as the agent's commands do, in the phase `install`.

    It has to end with 0 within `timeout_s`.
    """

    command: str = Field(min_length=1, max_length=65_536)
    timeout_s: Seconds = 600


class GatewayDoor(Frozen):
    """That a machine is to reach the model gateway of its host.

    A machine without a network finds it at `port` of its own loopback, any other one at an address of the host.
    """

    port: int = Field(default=8089, ge=1024, le=65_535)

    @field_validator("port")
    @classmethod
    def _is_free(cls, port: int) -> int:
        if port == PROXY_PORT:
            msg = f"port {PROXY_PORT} is where a sandbox finds the proxy to its hosts"
            raise ValueError(msg)
        return port
