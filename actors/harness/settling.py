"""When an agent's own program is over, so are its calls of the model: those that its gateway left open are stated as lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from actors.harness.launched import LaunchedState, SettleCalls
from gym_bus.clock import Clock
from gym_bus.event_log import Draft, EventLog
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.subjects import AggregateId
from schemas.base import Answer
from schemas.envelope import Envelope
from schemas.events import (
    BudgetExhausted,
    LaunchSettled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLost,
    ModelCallRecalled,
    ModelCallRequested,
    TaskToolCallRequested,
)
from schemas.ids import environment_key, tools_key
from schemas.values import Failure

SETTLED_WITHIN_S: Final = 5.0
"""How long a gateway has to state that a client of its own is gone; one that was killed never does."""
LOOK_EVERY_S: Final = 0.2


DIVERGED: Final = "replay_diverged"
OUTAGES: Final = frozenset(
    {
        "transport_unreachable",
        "transport_timeout",
        "provider_unavailable",
        "provider_rate_limited",
        "provider_auth",
        "provider_bad_answer",
        "context_overflow",
    }
)
"""Failures of a last call after which nothing that a program says is to be believed. A refused request may be one of many beside."""
GONE: Final = Failure(kind="transport_unreachable", message="the gateway was gone before the last call had an answer")


@dataclass
class Calls:
    """The calls of a launch: how many, what came of the last, whose budget was used up; `open` are turns of those without an answer.

    What an earlier launch left open is among them, and counts in nothing else. The first that a recording did not hold (`diverged`)
    stands, whatever came after it.
    """

    activation: int
    launch: int
    mine: set[str] = field(default_factory=set)
    completed: int = 0
    recalled: int = 0
    open: dict[str, int] = field(default_factory=dict)
    failure: Failure | None = None
    diverged: Failure | None = None
    budget: Literal["rollout", "run"] | None = None
    limit: str | None = None

    def note(self, event: Envelope) -> None:
        """Fold an event of the conversation."""
        match event.data:
            case ModelCallRequested() as asked:
                self.open[event.event_id] = asked.turn
                if (asked.activation, asked.launch) == (self.activation, self.launch):
                    self.mine.add(event.event_id)
            case ModelCallCompleted() | ModelCallFailed() | ModelCallLost() as answer:
                self.open.pop(answer.request_id, None)
                if answer.request_id in self.mine:
                    self._note_answer(answer)
            case ModelCallRecalled() as recalled:
                if (recalled.activation, recalled.launch) == (self.activation, self.launch):
                    self.recalled, self.failure = self.recalled + 1, None
            case BudgetExhausted(scope=scope, limit=limit) if self.budget != "run":
                self.budget, self.limit = scope, limit
            case _:
                pass

    def _note_answer(self, answer: ModelCallCompleted | ModelCallFailed | ModelCallLost) -> None:
        match answer:
            case ModelCallCompleted():
                self.completed, self.failure = self.completed + 1, None
            case ModelCallFailed(failure=failure) if failure.kind == DIVERGED:
                self.diverged = self.diverged or failure
            case ModelCallFailed(failure=failure):
                self.failure = failure if failure.kind in OUTAGES else self.failure
            case ModelCallLost():
                self.failure = GONE


async def settle(drive: Drive[LaunchedState], effect: SettleCalls) -> Outcome:  # noqa: ARG001  all is in the state
    """Wait until each call has an answer, or give it one."""
    state = drive.state
    if state.launch_id is None:
        return None
    return await settled_calls(drive, state.launch_id, state.activation, state.launched_in)


async def settled_calls(drive: Drive[Any], launch_id: str, activation: int, launch: int) -> Draft:
    """Return what the calls of a launch came to, as soon as each has an answer; `launch_id` is the event that asked for it."""
    conversation = drive.aggregate.sibling("model", drive.aggregate.key)
    log, clock = drive.shell.log_of("model"), drive.shell.clock
    await _tool_calls_over(log, clock, drive.aggregate, drive.attempt)
    until = clock.monotonic() + SETTLED_WITHIN_S
    while (calls := await _read(log, conversation, Calls(activation, launch))).open and clock.monotonic() < until:  # noqa: ASYNC110  another process states it
        await asyncio.sleep(LOOK_EVERY_S)
    for call_id, turn in calls.open.items():
        await drive.append_sibling(conversation, Draft(ModelCallLost(request_id=call_id, turn=turn), call_id))
    settled = LaunchSettled(
        launch_id=launch_id,
        calls=len(calls.mine),
        completed=calls.completed,
        recalled=calls.recalled,
        lost=len(calls.open),
        failure=calls.diverged or (GONE if calls.mine & calls.open.keys() else calls.failure),
        budget=calls.budget,
        limit=calls.limit,
    )
    return Draft(settled, launch_id)


async def _tool_calls_over(log: EventLog, clock: Clock, session: AggregateId, attempt: int) -> None:
    """Wait until each call of the task's tools has an answer: whoever executes it gives one within its time."""
    while True:
        latest_s, asked = 0.0, session.sibling("model", tools_key(attempt))
        async for event in log.read(f"{asked.prefix}.>"):
            if not isinstance(event.data, TaskToolCallRequested):
                continue
            place = session.sibling("verifier", environment_key(attempt, event.data.number))
            answers = [a async for a in log.read(f"{place.prefix}.>") if isinstance(a.data, Answer)]
            if not answers:
                left_s = event.data.timeout_s - (clock.now() - event.recorded_at).total_seconds()
                latest_s = max(latest_s, left_s + SETTLED_WITHIN_S)
        if latest_s <= 0:
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _read(log: EventLog, conversation: AggregateId, calls: Calls) -> Calls:
    async for event in log.read(f"{conversation.prefix}.>"):
        calls.note(event)
    return calls


TABLE: Final[dict[type[Any], Any]] = {SettleCalls: settle}
"""Which handler does which effect."""
