"""What a machine may reach, in Daytona's words: a list of domains, on the ports of the web; or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gym_bus.errors import Permanent

HTTPS: Final = "443"


def settings(hosts: Sequence[str]) -> dict[str, Any]:
    """Return the settings that let a machine reach `hosts` and nothing else; raises `Permanent` for a port other than 443."""
    names: list[str] = []
    for host in hosts:
        name, _, port = host.partition(":")
        if not name or "," in name or port not in ("", HTTPS):
            raise Permanent(f"{host}: Daytona allows hosts by name on port 443 only")
        names.append(name)
    return {"networkBlockAll": False, "domainAllowList": ",".join(names)} if names else {"networkBlockAll": True}
