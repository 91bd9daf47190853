"""What is known of a machine, and how each event changes it. What follows from it is decided in `box.py`."""

from __future__ import annotations

from typing import Final

from actors.sandbox import launches
from actors.sandbox.install import InstallView, note
from actors.sandbox.launches import OpenLaunch
from actors.sandbox.lending import Lending, asker_of
from schemas.base import Frozen
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    LaunchEnded,
    LaunchFailed,
    LaunchLost,
    LaunchRequested,
    LaunchTold,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxGiveBackRequested,
    SandboxGivenBack,
    SandboxInstalled,
    SandboxInstallStarted,
    SandboxLendRequested,
    SandboxLent,
    SandboxLost,
    SandboxRequested,
    SandboxRequestRefused,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.values import Party

ABOUT_A_MACHINE: Final = (
    SandboxRequested,
    ToolCallRequested,
    LaunchRequested,
    CheckpointRequested,
    SandboxLendRequested,
    SandboxGiveBackRequested,
    SandboxCloseRequested,
)
"""Requests that say by their `number` which of an attempt's machines they are about."""


class OpenCall(Frozen):
    """A command that has been asked for and not answered; with `is_outlived`, the right to it has ended while it may be under way."""

    request_id: str
    request: ToolCallRequested
    epoch: int
    asker: Party
    is_outlived: bool = False


class Wanted(Frozen):
    """A checkpoint that has been asked for and not written; with `is_before_next`, no command is started until it is.

    With `with_home` it holds what the agent's own program keeps for itself too.
    """

    request_id: str
    is_before_next: bool = False
    with_home: bool = False


class BoxState(Frozen):
    """What is known of a machine; `covered` are checkpoints that the last one, `outcome`, answers too."""

    request: SandboxRequested
    request_id: str
    key: str
    lending: Lending
    install: InstallView = InstallView()
    is_created: bool = False
    gateway_url: str | None = None
    is_lost: bool = False
    lost_reason: str | None = None
    is_over: bool = False
    is_closing: bool = False
    close_id: str | None = None
    answered: frozenset[str] = frozenset()
    calls: tuple[OpenCall, ...] = ()
    launches: tuple[OpenLaunch, ...] = ()
    wanted: tuple[Wanted, ...] = ()
    covered: tuple[str, ...] = ()
    outcome: CheckpointSaved | CheckpointFailed | None = None
    kept: int = 0
    late_closes: tuple[str, ...] = ()


def stated(state: BoxState, event: Envelope) -> BoxState:  # noqa: C901, PLR0911  one arm an event
    """Fold an event of the machine's own."""
    data = event.data
    match data:
        case ToolCallCompleted() | ToolCallFailed() | ToolCallLost():
            return _answered(state, data)
        case LaunchTold():
            return state.replaced(launches=launches.note_told(state.launches, data))
        case LaunchEnded() | LaunchFailed() | LaunchLost():
            left = launches.without(state.launches, data.request_id)
            return _settled(state.replaced(launches=left), data.request_id)
        case CheckpointSaved() | CheckpointFailed():
            return _kept(state, data)
        case SandboxLent() | SandboxGivenBack():
            return _has_changed_hands(state, data)
        case SandboxRequestRefused():
            return _settled(state, data.request_id)
        case SandboxInstallStarted() | SandboxInstalled():
            return state.replaced(install=note(state.install, data))
        case SandboxCreated() if data.request_id == state.request_id:
            return state.replaced(is_created=True, gateway_url=data.gateway_url)
        case SandboxFailed() if data.request_id == state.request_id:
            return state.replaced(is_over=True)
        case SandboxLost():
            return state.replaced(is_lost=True, lost_reason=data.reason)
        case SandboxDestroyed():
            late = tuple(close for close in state.late_closes if close != data.request_id)
            return state.replaced(is_over=True, late_closes=late, answered=state.answered | {data.request_id})
        case _:
            return state


def asked(state: BoxState, event: Envelope) -> BoxState:  # noqa: C901, PLR0911, PLR0912  one arm an event
    """Fold a request about the machine: it is noted once, and refused unless it comes from who has the machine."""
    data, request_id, lending = event.data, event.event_id, state.lending
    if request_id in state.answered or request_id in state.covered or lending.knows(request_id):
        return state
    asker = asker_of(event)
    match data:
        case SandboxCloseRequested() if asker == lending.owner:
            if not state.is_over and not state.is_closing:
                return state.replaced(is_closing=True, close_id=request_id)
            is_known = request_id == state.close_id or request_id in state.late_closes
            return state if is_known else state.replaced(late_closes=(*state.late_closes, request_id))
        case ToolCallRequested():
            if any(call.request_id == request_id for call in state.calls):
                return state
            if failure := lending.refusal(asker, data.right):
                return state.replaced(lending=lending.refuses(request_id, "command", failure))
            call = OpenCall(request_id=request_id, request=data, epoch=event.epoch, asker=asker)
            return state.replaced(calls=(*state.calls, call))
        case LaunchRequested():
            if any(launch.request_id == request_id for launch in state.launches):
                return state
            if failure := lending.refusal(asker, data.right):
                return state.replaced(lending=lending.refuses(request_id, "launch", failure))
            return state.replaced(launches=(*state.launches, launches.opened(event, data, asker)))
        case CheckpointRequested():
            if any(wanted.request_id == request_id for wanted in state.wanted):
                return state
            if failure := lending.refusal(asker, data.right):
                return state.replaced(lending=lending.refuses(request_id, "checkpoint", failure))
            wanted = Wanted(request_id=request_id, with_home=data.with_home)
            return state.replaced(wanted=(*state.wanted, wanted))
        case _:
            return state.replaced(lending=lending.is_asked(event))


def set_aside(state: BoxState, request_id: str) -> BoxState:
    """Fold that a request was answered by whoever could not go on with it."""
    return _settled(
        state.replaced(
            calls=tuple(call for call in state.calls if call.request_id != request_id),
            launches=launches.without(state.launches, request_id),
            wanted=tuple(wanted for wanted in state.wanted if wanted.request_id != request_id),
        ),
        request_id,
    )


def _has_changed_hands(state: BoxState, data: SandboxLent | SandboxGivenBack) -> BoxState:
    """End the right of who had the machine: its first command may be under way, what it wants kept is kept before the next one."""
    lending, calls = state.lending.has_changed(data), []
    is_same = (lending.borrower, lending.right) == (state.lending.borrower, state.lending.right)
    for n, call in enumerate(state.calls):
        failure = lending.refusal(call.asker, call.request.right)
        if n and failure:
            lending = lending.refuses(call.request_id, "command", failure)
        else:
            calls.append(call.replaced(is_outlived=True) if failure else call)
    wanted = state.wanted if is_same else tuple(w.replaced(is_before_next=True) for w in state.wanted)
    return _settled(state.replaced(lending=lending, calls=tuple(calls), wanted=wanted), data.request_id)


def _settled(state: BoxState, request_id: str) -> BoxState:
    lending = state.lending.is_answered(request_id)
    return state.replaced(lending=lending, answered=state.answered | {request_id})


def _answered(state: BoxState, data: ToolCallCompleted | ToolCallFailed | ToolCallLost) -> BoxState:
    call = next((c for c in state.calls if c.request_id == data.request_id), None)
    calls = tuple(c for c in state.calls if c.request_id != data.request_id)
    wanted = state.wanted
    if call and call.request.keeps_files and isinstance(data, ToolCallCompleted):
        wanted = (*wanted, Wanted(request_id=data.request_id, is_before_next=True))
    return _settled(state.replaced(calls=calls, wanted=wanted), data.request_id)


def _kept(state: BoxState, data: CheckpointSaved | CheckpointFailed) -> BoxState:
    """Note what became of a checkpoint: it is that of the older ones as well."""
    if data.request_id in state.covered:
        covered = tuple(request_id for request_id in state.covered if request_id != data.request_id)
        return state.replaced(covered=covered, answered=state.answered | {data.request_id})
    places = [n for n, wanted in enumerate(state.wanted) if wanted.request_id == data.request_id]
    if not places:
        return _settled(state, data.request_id) if state.lending.knows(data.request_id) else state
    older = tuple(wanted.request_id for wanted in state.wanted[: places[0]])
    return state.replaced(
        wanted=state.wanted[places[0] + 1 :],
        covered=(*state.covered, *older),
        outcome=data,
        kept=state.kept + 1,
        answered=state.answered | {data.request_id},
    )
