"""The session of an agent's own program as a pure state machine: a machine with a door to the gateway, the program, its end.

What the model was asked and answered is recorded by the gateway; what the program tells of itself, by the sandbox actor. A program
whose end is not known is never graded.

A program whose machine was lost is launched again in the next one, as often as sandboxes may be made again, from where its activation
began. It asks what it asked before, and the gateway answers from the log (`actors/gateway/recalling.py`).

Each further input is a launch of its own, which goes on with the program's session of the one before. What the program keeps for itself
is kept before an activation is stated as completed, so that a machine that is lost later begins with all that was done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal

from actors.harness import further
from actors.harness.activations import is_last
from actors.harness.core import MAX_STALE_TRIES, OVERTIME_S, SHORTEST_S, SessionCore, opened, unsupported
from actors.harness.ending import note, note_settled
from actors.harness.state import reaches_out
from adapters.harnesses import asking
from adapters.harnesses.base import SESSION_ID, Unsupported
from adapters.harnesses.outcomes import Seen, outcome
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from gym_bus.subjects import ANY
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ActivationStarted,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    InputEnded,
    LaunchEnded,
    LaunchFailed,
    LaunchLost,
    LaunchRequested,
    LaunchSettled,
    LaunchTold,
    RequestParked,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
    SessionFailed,
    SessionRequested,
)
from schemas.harnesses import AcpAgent, HarnessAgent, Program
from schemas.ids import sandbox_key
from schemas.readiness import GatewayDoor
from schemas.tasks import Evidence
from schemas.values import BlobRef, Failure, Message


@dataclass(frozen=True, slots=True)
class SettleCalls(Effect):
    """Have every call of the program answered, and say whether a budget was used up."""


NAMELESS: Final = "the agent's program has not told which session it was, and the next input must go on with it"
MISNAMED: Final = (
    "the agent's program calls its session by what is no name, and the next input must go on with it: {!r:.100}"
)


class Kept(Frozen):
    """A checkpoint between two activations: of the workspace, and of what the program keeps for itself."""

    files: BlobRef
    home: BlobRef | None


class LaunchedState(SessionCore):
    """What is known of a session in its `number`-th machine, which began with the files of `restore`, as its newest activation did.

    That goes on with the program's session `resume`. `launch_id` is its last launch; the last of all
    was for the activation `launched_for`, in the machine `launched_in`. Of those, `stale_launches` were refused as the wish of an
    earlier owner: nothing was started. `seen` is what the program has told in it, up to piece `told`.
    `settled` says that its calls are over, and which limit of the rollout's own budget was used up. `kept` is the checkpoint with
    which the next activation begins. `is_clean` is what the receipts of all launches say of what they left running, None without one.
    """

    resume: str | None = None
    restore: Kept | None = None
    box: Literal["none", "asked", "ready", "lost", "closing", "gone"] = "none"
    number: int = 1
    box_request: str | None = None
    place: str = ""
    is_given_back: bool = False
    launch_id: str | None = None
    launched_for: int = 0
    launched_in: int = 0
    stale_launches: int = 0
    told: int = 0
    seen: Seen = Seen()
    ended: LaunchEnded | None = None
    ended_id: str | None = None
    settled: LaunchSettled | None = None
    is_clean: bool | None = None
    keeping: Literal["no", "asked", "over"] = "no"
    keep_request: str | None = None
    kept: Kept | None = None

    @property
    def agent(self) -> Program:
        """Return the program's configuration."""
        if not isinstance(self.request.agent, HarnessAgent):
            raise TypeError(self.request.agent.type)
        return self.request.agent

    @property
    def is_launched(self) -> bool:
        """Say whether the program was launched for this activation, in the machine that there is now."""
        return (self.launched_for, self.launched_in) == (self.activation, self.number)

    @property
    def is_rid(self) -> bool:
        """Say whether there is no machine to wait for."""
        return self.box in {"none", "gone"} or (self.box == "lost" and self.is_given_back)

    @property
    def is_unsettled(self) -> bool:
        """Say whether calls of a program may still be open."""
        return self.launch_id is not None and self.settled is None

    @property
    def misses_files(self) -> bool:
        """Say whether what the next activation begins with, or what is to be handed in, has not been kept yet."""
        if self.may_go_on and not self.evidence:
            return self.request.checkpoints.when == "turn" and self.keeping != "over"
        return super().misses_files


class LaunchedMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = LaunchedState
    opened_by: type[Event] = SessionRequested

    def begin(self, request: Envelope) -> LaunchedState:
        """Start with what is asked; what the program cannot do fails before anything is made."""
        state = opened(LaunchedState, request)
        data = state.request
        try:
            if wanted := data.continuation or data.task.continues:
                asking.check_continues(state.agent, wanted)
            asking.check(state.agent, data.task, data.sandbox)
            if elsewhere := data.checkpoints.restore_in:
                asking.check(state.agent, data.task, elsewhere)
        except Unsupported as error:
            return state.failed(unsupported(str(error)))
        return state

    # -- evolve ----------------------------------------------------------------------------------------------------------------

    def evolve(self, state: LaunchedState, event: Envelope) -> LaunchedState:  # noqa: C901, PLR0911, PLR0912  one arm an event
        """Fold one event of any actor."""
        data = event.data
        match data:
            case SandboxRequested() if state.box == "none" or data.number > state.number:
                return _asked_for(state, event, data)
            case SandboxCreated() if state.box == "asked" and data.request_id == state.box_request:
                return state.replaced(box="ready", place=data.place)
            case SandboxFailed() if state.box == "asked" and data.request_id == state.box_request:
                return state.replaced(box="gone").failed(data.failure)
            case SandboxLost() if event.key == sandbox_key(event.attempt, state.number):
                failure = Failure(kind="sandbox_lost", message=data.reason, stage="tool")
                return _lost(state, failure, is_replaced=data.is_replaced)
            case SandboxCloseRequested() if data.number == state.number:
                return _given_back(state, event)
            case SandboxDestroyed() if state.box == "closing" and data.request_id == state.box_request:
                return state.replaced(box="gone")
            case LaunchRequested() if (data.activation, data.number) > (state.launched_for, state.launched_in):
                where = {"launched_for": data.activation, "launched_in": data.number}
                is_clean = state.is_clean if data.number == state.launched_in else None  # the machine before is gone
                return state.replaced(
                    **where, launch_id=event.event_id, told=0, seen=Seen(), settled=None, is_clean=is_clean
                )
            case LaunchTold() if data.launch_id == state.launch_id and data.part == state.told + 1:
                return state.replaced(told=data.part, seen=state.seen.with_items(data.items))
            case LaunchEnded() if data.request_id == state.launch_id and state.is_launched and state.ended is None:
                is_clean = data.is_clean and state.is_clean is not False
                return state.replaced(ended=data, ended_id=event.event_id, is_clean=is_clean)
            case LaunchFailed() if data.request_id == state.launch_id and state.is_launched:
                return _not_launched(state, data.failure)
            case LaunchLost() if data.request_id == state.launch_id and state.is_launched and state.ended is None:
                return _lost(state, Failure(kind="launch_lost", message=data.reason, stage="agent"))
            case LaunchSettled() if data.launch_id == state.launch_id:
                return note_settled(state, data)
            case CheckpointRequested(with_home=True):
                return state.replaced(keeping="asked", keep_request=event.event_id)
            case CheckpointSaved() if state.keeping == "asked" and data.request_id == state.keep_request:
                return state.replaced(keeping="over", kept=Kept(files=data.snapshot, home=data.home))
            case CheckpointFailed() if state.keeping == "asked" and data.request_id == state.keep_request:
                return state if data.failure.kind == "sandbox_lost" else state.replaced(keeping="over")
            case RequestParked() if state.keeping == "asked" and data.request_id == state.keep_request:
                return state.replaced(keeping="over")
            case CheckpointRequested():
                return state.replaced(files_request=event.event_id)
            case RequestParked() if data.request_id == state.box_request:
                return state.replaced(box="gone").failed(data.failure)
            case RequestParked() if data.request_id in {state.launch_id, state.files_request}:
                return state.failed(data.failure)
            case ActivationStarted():
                return _begun(state, event, data)
            case ActivationCompleted() if state.course.is_open(data.activation):
                return note(state, event).replaced(resume=data.session_id)
            case InputEnded() if state.kept and state.request.task.hands_in != "answer":
                return note(state, event).replaced(files=state.kept.files)
            case _:
                return note(state, event)

    def taken_over(self, state: LaunchedState) -> LaunchedState:
        """Nothing of a session lives in memory only: its program is the sandbox actor's, and goes on."""
        return state

    # -- decide ----------------------------------------------------------------------------------------------------------------

    def decide(self, state: LaunchedState, now: datetime) -> Sequence[Draft]:  # noqa: C901, PLR0911  one return a case
        """Say what to append now."""
        if state.is_closed:
            return ()
        if refused := further.refusals(state, partial(_cannot, state)):
            return refused
        if state.failure:
            return self._wind_up(state, state.failure)
        if state.evidence:
            return self._close(state, state.evidence)
        if state.course.is_between:
            return further.go_on(state, now)
        is_lost = state.box == "lost"
        if state.ended and not (is_lost and state.misses_files):
            return self._end(state, state.ended, state.settled) if state.settled else ()
        if now >= self._deadline(state):
            message = f"the session was not finished after {state.agent.timeout_s:g} s"
            failure = Failure(kind="agent_timeout", message=message)
            return (Draft(ActivationFailed(activation=state.activation, failure=failure), state.request_id),)
        if state.box == "none":
            return (Draft(self._sandbox(state, 1), state.request_id),)
        if is_lost:
            return self._replace(state)
        if state.box == "ready" and not state.is_launched:
            tag = str(state.activation) if state.activation > 1 else ""
            tag += f"/{state.stale_launches}" if state.stale_launches else ""
            return (Draft(self._launch(state, now), state.box_request, tag, place=state.place),)
        return ()

    @staticmethod
    def _sandbox(state: LaunchedState, number: int) -> SandboxRequested:
        request = state.request
        elsewhere = request.checkpoints.restore_in if number > 1 else None
        return SandboxRequested(
            sandbox=asking.roomy(elsewhere or request.sandbox, state.agent),
            number=number,
            restore=state.restore.files if state.restore else None,
            restore_home=state.restore.home if state.restore else None,
            install=request.install,
            gateway=GatewayDoor(),
            harness=state.agent.type,
            package=state.agent.package if isinstance(state.agent, AcpAgent) else None,
            warm_sandboxes=0 if elsewhere else request.warm_sandboxes,
        )

    def _replace(self, state: LaunchedState) -> Sequence[Draft]:
        """Give the lost machine back, and ask for the next one."""
        back = () if state.is_given_back else (self._give_back(state),)
        return (*back, Draft(self._sandbox(state, state.number + 1), state.box_request))

    @staticmethod
    def _launch(state: LaunchedState, now: datetime) -> LaunchRequested:
        task = state.request.task
        tools = asking.reached(state.agent, task)
        left_s = state.agent.timeout_s - (now - state.asked_at).total_seconds()
        first = state.activation == 1
        return LaunchRequested(
            agent=state.agent,
            activation=state.activation,
            prompt=asking.asked(state.agent, task) if first else asking.prompt_of(state.messages_asked),
            system_prompt=asking.system_prompt_of(state.agent, task.messages),
            model=getattr(state.request.model, "policy_model_name", state.request.model.type),
            timeout_s=max(round(left_s, 3), SHORTEST_S),
            number=state.number,
            mcp_grants=tools.mcp,
            has_tool_command=tools.has_command,
            required=tools.required,
            mcp_servers=tools.servers,
            skills_dir=tools.skills,
            resume=state.resume,
        )

    @staticmethod
    def _end(state: LaunchedState, ended: LaunchEnded, settled: LaunchSettled) -> Sequence[Draft]:
        """Complete the activation, or fail it; if another one follows, what that begins with is kept first."""
        found = outcome(ended, state.seen, settled)
        cause, activation = state.ended_id or state.request_id, state.activation
        if isinstance(found, Failure):
            return (Draft(ActivationFailed(activation=activation, failure=found), cause),)
        session_id = state.seen.with_items(ended.asides).session_id or state.resume
        if not is_last(state.request.task, activation, found):
            if session_id is None or not SESSION_ID.fullmatch(session_id):
                message = NAMELESS if session_id is None else MISNAMED.format(session_id)
                failure = Failure(kind="agent_failed", message=message)
                return (Draft(ActivationFailed(activation=activation, failure=failure), cause),)
            if state.misses_files:
                wanted = Draft(CheckpointRequested(number=state.number, with_home=True), cause, place=state.place)
                return (wanted,) if state.keeping == "no" else ()
        completed = ActivationCompleted(activation=activation, evidence=found, session_id=session_id)
        return (Draft(completed, cause),)

    @staticmethod
    def _deadline(state: LaunchedState) -> datetime:
        return state.asked_at + timedelta(seconds=state.agent.timeout_s + OVERTIME_S)

    def _wind_up(self, state: LaunchedState, failure: Failure) -> Sequence[Draft]:
        if state.box in {"ready", "lost"} and not state.is_given_back:
            return (self._give_back(state),)
        if not state.is_rid or state.is_unsettled:
            return ()
        return (self._failed(state, failure),)

    @staticmethod
    def _failed(state: LaunchedState, failure: Failure) -> Draft:
        over = SessionFailed(request_id=state.request_id, failure=failure, cleanup_confirmed=state.is_clean)
        return Draft(over, state.request_id)

    def _close(self, state: LaunchedState, evidence: Evidence) -> Sequence[Draft]:
        if state.misses_files and state.box == "ready":
            wanted = Draft(CheckpointRequested(number=state.number), state.activation_id, place=state.place)
            return () if state.files_request else (wanted,)
        if state.box in {"ready", "lost"} and not state.is_given_back:
            return (self._give_back(state),)
        if state.box in {"asked", "closing"}:
            return ()
        handed_in = evidence.replaced(files=state.files, refused=state.refused)
        closed = SessionClosed(
            request_id=state.request_id,
            evidence=handed_in,
            activations=state.course.record(),
            cleanup_confirmed=state.is_clean,
        )
        return (Draft(closed, state.activation_id),)

    @staticmethod
    def _give_back(state: LaunchedState) -> Draft:
        return Draft(SandboxCloseRequested(number=state.number), state.box_request, place=state.place or ANY)

    # -- pending ---------------------------------------------------------------------------------------------------------------

    def pending(self, state: LaunchedState) -> Sequence[Effect]:
        """Say what must be going on: others work, and the clock is looked at."""
        if state.is_closed:
            return ()
        is_over = state.ended or (state.failure and state.is_rid)
        settling = (SettleCalls(f"settle-{state.launch_id}"),) if state.is_unsettled and is_over else ()
        if state.course.is_between and not (state.failure or state.evidence):
            return (*further.waiting(state), *settling)
        if state.failure or state.evidence or state.ended:
            return (AwaitAnswer("answers"), *settling)
        return (AwaitAnswer("answers"), Alarm("deadline", self._deadline(state)), *settling)

    def is_done(self, state: LaunchedState) -> bool:
        """Say whether the session has been answered."""
        return state.is_closed

    def crashed(self, state: LaunchedState, failure: Failure) -> Sequence[Draft]:
        """Fail the activation; the session then winds up as usual. It is over at once if settling its calls broke down too."""
        if state.is_closed or (state.failure and not state.is_rid):
            return ()
        if state.failure:
            return (self._failed(state, state.failure),)
        return (Draft(ActivationFailed(activation=state.activation, failure=failure), state.request_id),)


def _cannot(state: LaunchedState, messages: tuple[Message, ...]) -> str | None:
    """Return why the program cannot be given a further input."""
    task = state.request.task.model_copy(update={"follow_ups": (messages,)})
    try:
        asking.check(state.agent, task, state.request.sandbox)
    except Unsupported as error:
        return str(error)
    return None


def _asked_for(state: LaunchedState, event: Envelope, data: SandboxRequested) -> LaunchedState:
    """Note that a machine is asked for; what was heard of a program in the one before is over."""
    box = {"box": "asked", "number": data.number, "box_request": event.event_id, "place": "", "is_given_back": False}
    return state.replaced(**box, ended=None, ended_id=None, keeping="no", keep_request=None)


def _begun(state: LaunchedState, event: Envelope, data: ActivationStarted) -> LaunchedState:
    """Note that the next input is taken: it begins with what was kept after the one before, and has a launch of its own."""
    taken = further.begun(state, event, data)
    if taken is state:
        return state
    fresh = {"launch_id": None, "settled": None, "ended": None, "ended_id": None, "keeping": "no", "keep_request": None}
    return taken.replaced(restore=state.kept, kept=None, **fresh)


def _not_launched(state: LaunchedState, failure: Failure) -> LaunchedState:
    """Have it launched again where the one that asked was owner no more; anything else fails the session."""
    if failure.kind == "stale" and state.stale_launches < MAX_STALE_TRIES:
        return state.replaced(
            launched_for=state.activation - 1, launch_id=None, stale_launches=state.stale_launches + 1
        )
    return state.failed(failure)


def _given_back(state: LaunchedState, event: Envelope) -> LaunchedState:
    """Note that the machine is given back: at the end its end is waited for, and not where another one follows."""
    if state.box == "lost" and not (state.failure or state.evidence):
        return state.replaced(is_given_back=True)
    return state.replaced(box="closing", box_request=event.event_id) if state.box in {"ready", "lost"} else state


def _lost(state: LaunchedState, failure: Failure, *, is_replaced: bool = False) -> LaunchedState:
    """Note that the machine is gone, or not to be trusted; with `failure` unless it is needed no more, or another one follows."""
    if state.box not in {"asked", "ready"}:
        return state
    lost = state.replaced(box="lost")
    is_needed = state.misses_files or (not state.evidence and (state.may_go_on or not state.ended))
    may_go_on = not (state.evidence or is_replaced) and _has_another(state)
    return lost.failed(failure) if is_needed and not may_go_on else lost


def _has_another(state: LaunchedState) -> bool:
    """Say whether another machine can follow: a program that may have had an effect outside of the lost one is not run twice."""
    request = state.request
    is_done = state.ended is not None and not state.misses_files
    if is_done or state.course.is_between:  # the next activation begins in the other machine
        return state.number <= request.checkpoints.max_restores and state.kept is not None
    has_files = state.activation == 1 or state.restore is not None
    is_repeatable = state.launch_id is None or not reaches_out(request.sandbox)
    return state.number <= request.checkpoints.max_restores and has_files and is_repeatable
