"""Whether sandboxes can be held to what a configuration lets them reach, asked before anything is started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gym_bus.errors import BadConfig

if TYPE_CHECKING:
    from schemas.config import Bubblewrap, Docker

HOLD_TO_LISTS: Final = frozenset({"bubblewrap"})
"""The types of sandboxes whose providers have the capability `egress`; a test compares the two."""


def check_network(sandbox: Bubblewrap | Docker) -> None:
    """Raise `BadConfig` if hosts are allowed, and nothing would see to it that no others are reached."""
    if sandbox.type in HOLD_TO_LISTS:
        return
    reaches = {name: getattr(sandbox.network, name).allow for name in ("install", "agent", "verify")}
    wanted = [f"sandbox.network.{name}.allow" for name, allow in reaches.items() if allow]
    if wanted:
        raise BadConfig(
            f"{', '.join(wanted)}: sandbox.type={sandbox.type} has no allow lists of hosts, its sandboxes reach nothing: "
            f"leave the lists empty, or set sandbox.type to {' or '.join(sorted(HOLD_TO_LISTS))}"
        )
