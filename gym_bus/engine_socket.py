"""Where the container engine listens; only engines of this host are meant, whose unix socket is a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gym_bus.config_text import Sourced

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_UNIX: Final = "unix://"


def pin_socket(sourced: Sourced, environ: Mapping[str, str]) -> None:
    """Fill in `sandbox.socket` from DOCKER_HOST: processes that are running already have another environment."""
    sandbox, host = sourced.values.get("sandbox"), environ.get("DOCKER_HOST", "")
    if not isinstance(sandbox, dict) or not host.startswith(_UNIX):
        return
    if sandbox.get("type", "docker" if "image" in sandbox else None) == "docker" and sandbox.get("socket") is None:
        sandbox["socket"] = host.removeprefix(_UNIX)
