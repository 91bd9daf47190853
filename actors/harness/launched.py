"""The session of an agent's own program as a pure state machine: a machine with a door to the gateway, the program, its end.

What the model was asked and answered is recorded by the gateway; what the program tells of itself, by the sandbox actor. A program
whose end is not known is never graded, and never started again in the same attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from adapters.harnesses import asking
from adapters.harnesses.base import Unsupported
from adapters.harnesses.outcomes import Seen, outcome
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.base import Event, Frozen
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    LaunchEnded,
    LaunchFailed,
    LaunchLost,
    LaunchRequested,
    LaunchSettled,
    LaunchTold,
    RequestParked,
    RunCancelled,
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
from schemas.harnesses import HarnessAgent, Program
from schemas.ids import sandbox_key
from schemas.readiness import GatewayDoor
from schemas.tasks import Evidence
from schemas.values import BlobRef, Failure


@dataclass(frozen=True, slots=True)
class SettleCalls(Effect):
    """Have every call of the program answered, and say whether a budget was used up."""


OVERTIME_S: Final = 120.0
"""What a session waits beyond its agent's time: the program is ended in the sandbox, and that has to be heard."""
SHORTEST_S: Final = 1.0


class LaunchedState(Frozen):
    """What is known of a session. `seen` is what the program has told, up to piece `told`.

    `settled` says that its calls are over, and which limit of the rollout's own budget was used up.
    """

    request: SessionRequested
    request_id: str
    started_at: datetime
    box: Literal["none", "asked", "ready", "lost", "closing", "gone"] = "none"
    box_request: str | None = None
    place: str = ""
    launch_id: str | None = None
    told: int = 0
    seen: Seen = Seen()
    ended: LaunchEnded | None = None
    ended_id: str | None = None
    settled: LaunchSettled | None = None
    evidence: Evidence | None = None
    activation_id: str | None = None
    files_request: str | None = None
    files: BlobRef | None = None
    refused: str | None = None
    failure: Failure | None = None
    is_closed: bool = False

    @property
    def agent(self) -> Program:
        """Return the program's configuration."""
        if not isinstance(self.request.agent, HarnessAgent):
            raise TypeError(self.request.agent.type)
        return self.request.agent

    @property
    def is_unsettled(self) -> bool:
        """Say whether calls of a program may still be open."""
        return self.launch_id is not None and self.settled is None

    @property
    def misses_files(self) -> bool:
        """Say whether what is to be handed in has not been kept yet."""
        is_handed_in = self.request.task.hands_in != "answer"
        return is_handed_in and self.files is None and self.refused is None

    def failed(self, failure: Failure) -> LaunchedState:
        """Return the state with `failure`, unless it has one already."""
        return self.replaced(failure=self.failure or failure)


class LaunchedMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = LaunchedState
    opened_by: type[Event] = SessionRequested

    def begin(self, request: Envelope) -> LaunchedState:
        """Start with what is asked; what the program cannot do fails before anything is made."""
        data = request.data
        if not isinstance(data, SessionRequested):
            raise TypeError(request.type)
        state = LaunchedState(request=data, request_id=request.event_id, started_at=request.recorded_at)
        try:
            asking.check(state.agent, data.task, data.sandbox)
        except Unsupported as error:
            return state.failed(Failure(kind="unsupported", message=str(error), stage="seed", terminal=True))
        return state

    # -- evolve ----------------------------------------------------------------------------------------------------------------

    def evolve(self, state: LaunchedState, event: Envelope) -> LaunchedState:  # noqa: C901, PLR0911, PLR0912  one arm an event
        """Fold one event of any actor."""
        data = event.data
        match data:
            case SandboxRequested() if state.box == "none":
                return state.replaced(box="asked", box_request=event.event_id)
            case SandboxCreated() if state.box == "asked" and data.request_id == state.box_request:
                return state.replaced(box="ready", place=data.place)
            case SandboxFailed() if state.box == "asked" and data.request_id == state.box_request:
                return state.replaced(box="gone").failed(data.failure)
            case SandboxLost() if event.key == sandbox_key(event.attempt) and state.box in {"asked", "ready"}:
                lost = state.replaced(box="lost")
                is_needed = not state.evidence or state.misses_files
                failure = Failure(kind="sandbox_lost", message=data.reason, stage="tool")
                return lost.failed(failure) if is_needed else lost
            case SandboxCloseRequested() if state.box in {"ready", "lost"}:
                return state.replaced(box="closing", box_request=event.event_id)
            case SandboxDestroyed() if state.box == "closing" and data.request_id == state.box_request:
                return state.replaced(box="gone")
            case LaunchRequested() if state.launch_id is None:
                return state.replaced(launch_id=event.event_id)
            case LaunchTold() if data.launch_id == state.launch_id and data.part == state.told + 1:
                return state.replaced(told=data.part, seen=state.seen.with_items(data.items))
            case LaunchEnded() if data.request_id == state.launch_id and state.ended is None:
                return state.replaced(ended=data, ended_id=event.event_id)
            case LaunchFailed() if data.request_id == state.launch_id:
                return state.failed(data.failure)
            case LaunchLost() if data.request_id == state.launch_id and state.ended is None:
                return state.failed(Failure(kind="launch_lost", message=data.reason, stage="agent"))
            case LaunchSettled() if data.launch_id == state.launch_id:
                return _settled(state, data)
            case CheckpointRequested():
                return state.replaced(files_request=event.event_id)
            case CheckpointSaved() if data.request_id == state.files_request:
                return state.replaced(files=data.snapshot)
            case CheckpointFailed() if data.request_id == state.files_request and state.files is None:
                is_agents = data.failure.terminal
                return state.replaced(refused=data.failure.message) if is_agents else state.failed(data.failure)
            case RequestParked() if data.request_id == state.box_request:
                return state.replaced(box="gone").failed(data.failure)
            case RequestParked() if data.request_id in {state.launch_id, state.files_request}:
                return state.failed(data.failure)
            case ActivationCompleted():
                return state.replaced(evidence=data.evidence, activation_id=event.event_id)
            case ActivationFailed():
                return state.failed(data.failure)
            case SessionClosed() | SessionFailed():
                return state.replaced(is_closed=True)
            case RunCancelled() if not state.evidence:
                message = f"run cancelled: {data.reason}"
                return state.failed(Failure(kind="cancelled", message=message, terminal=True))
            case _:
                return state

    def taken_over(self, state: LaunchedState) -> LaunchedState:
        """Nothing of a session lives in memory only: its program is the sandbox actor's, and goes on."""
        return state

    # -- decide ----------------------------------------------------------------------------------------------------------------

    def decide(self, state: LaunchedState, now: datetime) -> Sequence[Draft]:  # noqa: PLR0911  one return a case
        """Say what to append now."""
        if state.is_closed:
            return ()
        if state.failure:
            return self._wind_up(state, state.failure)
        if state.evidence:
            return self._close(state, state.evidence)
        if state.ended:
            return (self._end(state, state.ended, state.settled),) if state.settled else ()
        if now >= self._deadline(state):
            message = f"the session was not finished after {state.agent.timeout_s:g} s"
            failure = Failure(kind="agent_timeout", message=message)
            return (Draft(ActivationFailed(activation=1, failure=failure), state.request_id),)
        if state.box == "none":
            return (Draft(self._sandbox(state), state.request_id),)
        if state.box == "ready" and state.launch_id is None:
            return (Draft(self._launch(state, now), state.box_request, place=state.place),)
        return ()

    @staticmethod
    def _sandbox(state: LaunchedState) -> SandboxRequested:
        request = state.request
        return SandboxRequested(
            sandbox=asking.roomy(request.sandbox, state.agent),
            install=request.install,
            gateway=GatewayDoor(),
            harness=state.agent.type,
            warm_sandboxes=request.warm_sandboxes,
        )

    @staticmethod
    def _launch(state: LaunchedState, now: datetime) -> LaunchRequested:
        task = state.request.task
        tools = asking.reached(state.agent, task)
        left_s = state.agent.timeout_s - (now - state.started_at).total_seconds()
        return LaunchRequested(
            agent=state.agent,
            activation=1,
            prompt=asking.asked(state.agent, task),
            system_prompt=asking.system_prompt_of(state.agent, task.messages),
            model=getattr(state.request.model, "policy_model_name", state.request.model.type),
            timeout_s=max(round(left_s, 3), SHORTEST_S),
            mcp_grants=tools.mcp,
            has_tool_command=tools.has_command,
        )

    @staticmethod
    def _end(state: LaunchedState, ended: LaunchEnded, settled: LaunchSettled) -> Draft:
        found = outcome(ended, state.seen, settled)
        cause = state.ended_id or state.request_id
        if isinstance(found, Failure):
            return Draft(ActivationFailed(activation=1, failure=found), cause)
        return Draft(ActivationCompleted(activation=1, evidence=found), cause)

    @staticmethod
    def _deadline(state: LaunchedState) -> datetime:
        return state.started_at + timedelta(seconds=state.agent.timeout_s + OVERTIME_S)

    def _wind_up(self, state: LaunchedState, failure: Failure) -> Sequence[Draft]:
        if state.box in {"ready", "lost"}:
            return (self._give_back(state),)
        if state.box in {"asked", "closing"} or state.is_unsettled:
            return ()
        return (Draft(SessionFailed(request_id=state.request_id, failure=failure), state.request_id),)

    def _close(self, state: LaunchedState, evidence: Evidence) -> Sequence[Draft]:
        if state.misses_files and state.box == "ready":
            wanted = Draft(CheckpointRequested(), state.activation_id, place=state.place)
            return () if state.files_request else (wanted,)
        if state.box in {"ready", "lost"}:
            return (self._give_back(state),)
        if state.box in {"asked", "closing"}:
            return ()
        handed_in = evidence.replaced(files=state.files, refused=state.refused)
        return (Draft(SessionClosed(request_id=state.request_id, evidence=handed_in), state.activation_id),)

    @staticmethod
    def _give_back(state: LaunchedState) -> Draft:
        return Draft(SandboxCloseRequested(), state.box_request, place=state.place)

    # -- pending ---------------------------------------------------------------------------------------------------------------

    def pending(self, state: LaunchedState) -> Sequence[Effect]:
        """Say what must be going on: others work, and the clock is looked at."""
        if state.is_closed:
            return ()
        is_over = state.ended or (state.failure and state.box in {"none", "gone"})
        settling = (SettleCalls("settle"),) if state.is_unsettled and is_over else ()
        if state.failure or state.evidence:
            return (AwaitAnswer("answers"), *settling)
        return (AwaitAnswer("answers"), Alarm("deadline", self._deadline(state)), *settling)

    def is_done(self, state: LaunchedState) -> bool:
        """Say whether the session has been answered."""
        return state.is_closed

    def crashed(self, state: LaunchedState, failure: Failure) -> Sequence[Draft]:
        """Fail the activation; the session then winds up as usual."""
        if state.is_closed or state.failure:
            return ()
        return (Draft(ActivationFailed(activation=1, failure=failure), state.request_id),)


def _settled(state: LaunchedState, data: LaunchSettled) -> LaunchedState:
    """End with what there is: of the rollout's own budget that may be graded; of the run's, the rollout was never to be finished."""
    settled = state.replaced(settled=data)
    if data.budget != "run":
        return settled
    message = f"the budget of the whole run is used up ({data.limit})"
    return settled.failed(Failure(kind="budget_exhausted", message=message, terminal=True))
