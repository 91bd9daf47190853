"""What a microVM may reach, in E2B's words: names of hosts, on the ports of HTTP and TLS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from e2b import SandboxNetworkOpts, SandboxNetworkUpdate

from gym_bus.errors import Permanent

EVERYTHING: Final = "0.0.0.0/0"
HTTPS: Final = "443"


def rules(hosts: Sequence[str]) -> SandboxNetworkOpts:
    """Return the rules that let a machine reach `hosts` and nothing else; raises `Permanent` for a port other than 443."""
    return SandboxNetworkOpts(allow_out=_names(hosts), deny_out=[EVERYTHING])


def update(hosts: Sequence[str]) -> SandboxNetworkUpdate:
    """Return the same for a machine that runs."""
    return SandboxNetworkUpdate(allow_out=_names(hosts), deny_out=[EVERYTHING])


def _names(hosts: Sequence[str]) -> list[str]:
    names: list[str] = []
    for host in hosts:
        name, _, port = host.partition(":")
        if not name or port not in ("", HTTPS):
            raise Permanent(f"{host}: E2B allows hosts by name on port 443 only")
        names.append(name)
    return names
