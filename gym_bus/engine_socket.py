"""Where the container engine listens; only engines of this host are meant, whose unix socket is a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gym_bus.config_sandboxes import written
from gym_bus.config_text import Sourced
from gym_bus.errors import BadConfig

DEFAULT_SOCKET: Final = "/var/run/docker.sock"
_UNIX: Final = "unix://"


def pin_socket(sourced: Sourced, environ: Mapping[str, str]) -> None:
    """Make every `socket` a path; if nothing is said, DOCKER_HOST's: processes that run already have another environment."""
    host = environ.get("DOCKER_HOST", "")
    for place, sandbox in written(sourced):
        if sandbox.get("type", "docker" if "image" in sandbox else None) != "docker":
            continue
        said = sandbox.get("socket")
        if said is None and host.startswith(_UNIX):
            sandbox["socket"] = host.removeprefix(_UNIX)
        elif isinstance(said, str) and "://" in said:
            if not said.startswith(_UNIX):
                msg = f"{place}.socket: {said}: the container engine has to be on this host; name the path of its unix socket"
                raise BadConfig(msg)
            sandbox["socket"] = said.removeprefix(_UNIX)
