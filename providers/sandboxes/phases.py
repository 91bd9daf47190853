"""Which list of hosts holds when: a rollout's phases follow each other, and none comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from gym_bus.errors import Permanent
from schemas.sandboxes import NetworkPolicy, Reach, SandboxConfig

Phase = Literal["install", "agent", "verify"]
PHASES: Final[tuple[Phase, ...]] = ("install", "agent", "verify")


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """A sandbox entered `phase`, in which it may reach the hosts in `allow` and no others."""

    phase: Phase
    allow: tuple[str, ...]


def reach_in(policy: NetworkPolicy, phase: Phase | None) -> Reach:
    """Return what may be reached in a phase; before the first one, nothing."""
    match phase:
        case "install":
            return policy.install
        case "agent":
            return policy.agent
        case "verify":
            return policy.verify
        case None:
            return Reach()


def enter(policy: NetworkPolicy, now: Phase | None, phase: Phase) -> PhaseChanged:
    """Return the change from the phase `now` (None before the first) to `phase`; raises `Permanent` if that is over, or goes on.

    Phases may be left out. What an agent could reach once it cannot reach again by going back.
    """
    if now is not None and PHASES.index(phase) <= PHASES.index(now):
        msg = (
            f"a sandbox in its phase {now!r} cannot enter {phase!r}: phases go {', '.join(PHASES)}, and none comes back"
        )
        raise Permanent(msg)
    return PhaseChanged(phase, reach_in(policy, phase).allow)


def phase_of(sandbox: SandboxConfig, phase: Phase, now: Phase | None = None) -> PhaseChanged | None:
    """Return the phase that a machine enters, from `now` (None: it is new); None for one whose configuration says nothing of hosts."""
    policy = getattr(sandbox, "network", None)
    return enter(policy, now, phase) if isinstance(policy, NetworkPolicy) else None
