"""Sandboxes of Daytona, by its documented REST API.

Daytona's own client asks for two dozen other packages, several of which follow its releases of every few days; here are eight calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from providers.sandboxes.base import Capability
from providers.sandboxes.daytona.box import DaytonaBox
from providers.sandboxes.daytona.cloud import DaytonaCloud
from providers.sandboxes.daytona.machine import DaytonaMachine
from providers.sandboxes.remote.provider import RemoteProvider
from providers.sandboxes.remote.shell import place_of
from schemas.sandboxes import Daytona

CAPABILITIES: Final[frozenset[Capability]] = frozenset({"files", "snapshots", "detached", "egress", "ports"})


class DaytonaProvider(RemoteProvider[DaytonaMachine, DaytonaBox]):
    """Makes machines of `config.snapshot` with the key `api_key`."""

    def __init__(self, config: Daytona, work_dir: Path, api_key: str | None) -> None:
        place = place_of(config, work_dir, user=None, admin=None)
        super().__init__(config, work_dir, DaytonaCloud(config, api_key), place, DaytonaBox, CAPABILITIES)
