"""What a task's machines reach: a list of hosts, or nothing. The whole internet is nothing that a sandbox here has."""

from __future__ import annotations

import re
from typing import Final

from pydantic import ValidationError

from adapters.benchmarks.harbor.toml import Network
from gym_bus.errors import BadTaskset
from schemas.sandboxes import Reach

ADDRESS: Final = re.compile(r"[0-9.]+(/\d+)?|.*[:/].*")
PORTS: Final = (443, 80)
"""Lists of hosts say ports here, and none in a task: these are meant."""


class WantsInternet(BadTaskset):
    """A task says that it needs the whole internet."""


def reach_of(said: Network, *, without_internet: bool) -> Reach | None:
    """Return what a table says, None if it says nothing; raises `WantsInternet`, `BadTaskset`."""
    mode = said.network_mode
    if mode is None and said.allow_internet is not None:
        mode = "public" if said.allow_internet else "no-network"
    if mode is None:
        return None
    if mode == "public" and not without_internet:
        msg = (
            'it wants the whole internet, which no sandbox has: name the hosts (network_mode = "allowlist", allowed_hosts), '
            "or taskset.without_internet=true runs it without"
        )
        raise WantsInternet(msg)
    if mode != "allowlist":
        return Reach()
    hosts = [host.strip().lower().rstrip(".") for host in said.allowed_hosts or ()]
    if bad := next((host for host in hosts if ADDRESS.fullmatch(host)), None):
        raise BadTaskset(f"allowed_hosts: {bad!r} is an address: lists of hosts hold names here")
    try:
        return Reach(allow=tuple(f"{host}:{port}" for host in hosts for port in PORTS))
    except ValidationError as error:
        raise BadTaskset(f"allowed_hosts: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
