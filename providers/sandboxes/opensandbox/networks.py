"""What a machine may reach, in OpenSandbox's words: names of hosts, whatever the port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

from gym_bus.errors import Permanent

HTTPS: Final = "443"


def policy(hosts: Sequence[str]) -> NetworkPolicy:
    """Return the policy that lets a machine reach `hosts` and nothing else; raises `Permanent` for a port other than 443."""
    return NetworkPolicy(egress=rules(hosts))  # the rest is denied unless something else is said


def rules(hosts: Sequence[str]) -> list[NetworkRule]:
    """Return a rule for each host."""
    found: list[NetworkRule] = []
    for host in hosts:
        name, _, port = host.partition(":")
        if not name or port not in ("", HTTPS):
            raise Permanent(f"{host}: OpenSandbox allows hosts by name, and not by a port other than 443")
        found.append(NetworkRule(action="allow", target=name))
    return found
