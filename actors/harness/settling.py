"""When an agent's own program is over, so are its calls of the model: those that its gateway left open are stated as lost."""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from actors.harness.launched import LaunchedState, SettleCalls
from gym_bus.event_log import Draft, EventLog
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.subjects import AggregateId
from schemas.base import Frozen
from schemas.events import (
    BudgetExhausted,
    LaunchSettled,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLost,
    ModelCallRequested,
)

SETTLED_WITHIN_S: Final = 5.0
"""How long a gateway has to state that a client of its own is gone; one that was killed never does."""
LOOK_EVERY_S: Final = 0.2


class Calls(Frozen):
    """The calls of a conversation: how many, the turns of those without an answer, and whose budget was used up."""

    count: int = 0
    open: dict[str, int] = {}  # noqa: RUF012  frozen, and copied by pydantic
    budget: Literal["rollout", "run"] | None = None
    limit: str | None = None


async def settle(drive: Drive[LaunchedState], effect: SettleCalls) -> Outcome:  # noqa: ARG001  all is in the state
    """Wait until each call has an answer, or give it one."""
    launch_id = drive.state.launch_id
    if launch_id is None:
        return None
    conversation = drive.aggregate.sibling("model", drive.aggregate.key)
    log, clock = drive.shell.log_of("model"), drive.shell.clock
    until = clock.monotonic() + SETTLED_WITHIN_S
    while (calls := await _calls(log, conversation)).open and clock.monotonic() < until:  # noqa: ASYNC110  another process states it
        await asyncio.sleep(LOOK_EVERY_S)
    for call_id, turn in calls.open.items():
        await drive.append_sibling(conversation, Draft(ModelCallLost(request_id=call_id, turn=turn), call_id))
    settled = LaunchSettled(
        launch_id=launch_id, calls=calls.count, lost=len(calls.open), budget=calls.budget, limit=calls.limit
    )
    return Draft(settled, launch_id)


async def _calls(log: EventLog, conversation: AggregateId) -> Calls:
    count, left = 0, dict[str, int]()
    budget: Literal["rollout", "run"] | None = None
    limit: str | None = None
    async for event in log.read(f"{conversation.prefix}.>"):
        match event.data:
            case ModelCallRequested(turn=turn):
                count += 1
                left[event.event_id] = turn
            case (
                ModelCallCompleted(request_id=call_id)
                | ModelCallFailed(request_id=call_id)
                | ModelCallLost(request_id=call_id)
            ):
                left.pop(call_id, None)
            case BudgetExhausted(scope=scope, limit=used_up) if budget != "run":
                budget, limit = scope, used_up
            case _:
                pass
    return Calls(count=count, open=left, budget=budget, limit=limit)


TABLE: Final[dict[type[Any], Any]] = {SettleCalls: settle}
"""Which handler does which effect."""
