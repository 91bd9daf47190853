"""What makes a new machine ready, as part of its pure machine: a command that runs once in it, before anybody is told that it is made.

That it begins is stated before it does, and how it ended before anything follows. What was installed dies with the machine, so whoever
takes one over that is not made yet begins anew, in another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Effect
from providers.sandboxes.phases import phase_of
from schemas.base import Frozen
from schemas.events import SandboxFailed, SandboxInstalled, SandboxInstallStarted, SandboxRequested
from schemas.values import Failure

LOG_MAX_CHARS: Final = 4000
"""How much of what a command printed stands in its failure: its end. The whole of it is in `SandboxInstalled`."""

LAST_LINE_MAX_CHARS: Final = 200
"""How much of its last line stands in the failure's first line, which is all that tables show."""


@dataclass(frozen=True, slots=True)
class InstallBox(Effect):
    """Make the machine, and run its install for the `number`-th time."""

    number: int


class InstallView(Frozen):
    """How far a machine's install is: how often it began, whether the last one goes on, and how that ended."""

    began: int = 0
    is_under_way: bool = False
    ended: SandboxInstalled | None = None


def note(view: InstallView, data: SandboxInstallStarted | SandboxInstalled) -> InstallView:
    """Fold what was stated of it."""
    if isinstance(data, SandboxInstallStarted):
        return view if data.number <= view.began else InstallView(began=data.number, is_under_way=True)
    is_of_this = view.is_under_way and data.number == view.began
    return view.replaced(is_under_way=False, ended=data) if is_of_this else view


def taken_over(view: InstallView) -> InstallView:
    """Begin anew, as the machine is gone; one in which it failed is not followed by another."""
    return view if view.ended and not is_good(view.ended) else view.replaced(is_under_way=False, ended=None)


def decide(request: SandboxRequested, request_id: str, view: InstallView) -> Sequence[Draft]:
    """State that it begins, or that there is no machine because it failed."""
    if request.install is None or view.is_under_way:
        return ()
    if view.ended is None:
        change = phase_of(request.sandbox, "install")
        began = SandboxInstallStarted(
            number=view.began + 1,
            phase=change.phase if change else None,
            allow=change.allow if change else (),
        )
        return (Draft(began, request_id, str(view.began + 1)),)
    if is_good(view.ended):
        return ()
    return (Draft(SandboxFailed(request_id=request_id, failure=_failure(view.ended)), request_id),)


def pending(view: InstallView) -> Sequence[Effect]:
    """Run it as long as it is under way."""
    return (InstallBox(f"install-{view.began}", view.began),) if view.is_under_way else ()


def is_good(ended: SandboxInstalled) -> bool:
    """Say whether the machine is ready."""
    return ended.lost is None and ended.ended_by == "exit" and ended.exit_code == 0


def _failure(ended: SandboxInstalled) -> Failure:
    message = f"the install {_how(ended)} after {ended.duration_s:.1f} s"
    log = ended.output[-LOG_MAX_CHARS:].strip()
    if log:
        is_cut = ended.truncated or len(ended.output) > LOG_MAX_CHARS
        last = log.splitlines()[-1][-LAST_LINE_MAX_CHARS:].strip()
        message += f": {last}\nit printed{', at the end' if is_cut else ''}:\n{log}"
    return Failure(kind="install_failed", message=message, stage="seed")


def _how(ended: SandboxInstalled) -> str:
    if ended.lost is not None:
        return f"was lost with its machine ({ended.lost})"
    match ended.ended_by:
        case "timeout":
            return "was not finished (install.timeout_s)"
        case "out_of_memory":
            return "ran out of memory (sandbox.limits.memory_mib)"
        case "exit" | "signal":
            return f"ended with exit code {ended.exit_code}"
