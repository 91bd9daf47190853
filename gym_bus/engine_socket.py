"""Where the container engine listens; only engines of this host are meant, whose unix socket is a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gym_bus.config_text import Sourced
from gym_bus.errors import BadConfig

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_UNIX: Final = "unix://"


def pin_socket(sourced: Sourced, environ: Mapping[str, str]) -> None:
    """Make `sandbox.socket` a path; if nothing is said, DOCKER_HOST's: processes that run already have another environment."""
    sandbox, host = sourced.values.get("sandbox"), environ.get("DOCKER_HOST", "")
    if not isinstance(sandbox, dict) or sandbox.get("type", "docker" if "image" in sandbox else None) != "docker":
        return
    written = sandbox.get("socket")
    if written is None and host.startswith(_UNIX):
        sandbox["socket"] = host.removeprefix(_UNIX)
    elif isinstance(written, str) and "://" in written:
        if not written.startswith(_UNIX):
            msg = f"sandbox.socket: {written}: the container engine has to be on this host; name the path of its unix socket"
            raise BadConfig(msg)
        sandbox["socket"] = written.removeprefix(_UNIX)
