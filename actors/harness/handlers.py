"""What the harness does outside: calling models. The gateway library for native agents, in the harness's own process.

A try is stated before it is made, its outcome after; between them nothing else happens. A try whose worker died is stated as lost and
made again; a recorded answer is never asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from actors.budget import RunSpending, cost_of
from actors.harness import compaction
from actors.harness.session import CallModel, SettleCall
from actors.harness.state import SessionState
from actors.harness.task_calls import offered
from actors.token_chains import KnownChains
from gym_bus import boundary
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Interrupted, Outcome
from gym_bus.subjects import AggregateId
from providers.models.backoff import backoff_s
from providers.models.base import Model, ModelCall, ModelError, context_digest
from schemas.config import ModelConfig
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallLost, ModelCallRequested
from schemas.values import Failure


class ModelHandlers:
    """The handlers of `CallModel` and `SettleCall`."""

    def __init__(self, model_for: Callable[[ModelConfig], Model], spending: RunSpending) -> None:
        """Call the models that `model_for` returns, while `spending` leaves room."""
        self._model_for = model_for
        self._spending = spending
        self._chains = KnownChains()

    async def settle(self, drive: Drive[SessionState], effect: SettleCall) -> Outcome:
        """State an open call as lost once its handler (if it lives in this process) has had its say."""
        await drive.effect_over(f"model-{effect.turn}")
        if open_call := drive.state.open_call:
            await drive.append_sibling(
                _conversation(drive), Draft(ModelCallLost(request_id=open_call, turn=effect.turn), open_call)
            )
        return None

    async def call(self, drive: Drive[SessionState], effect: CallModel) -> Outcome:
        """Get an answer: try, wait, try again, as often as configured."""
        conversation = _conversation(drive)
        if open_call := drive.state.open_call:
            await drive.append_sibling(
                conversation, Draft(ModelCallLost(request_id=open_call, turn=effect.turn), open_call)
            )
        while drive.state.turn < effect.turn and not drive.state.failure:
            if await self._is_out_of_budget(drive, conversation):
                break
            retry_in_s = await self._try(drive, effect, conversation)
            if retry_in_s is None:
                break
            try:
                await drive.interruptible(effect.id, asyncio.sleep(retry_in_s))
            except Interrupted:
                break
        return None

    async def _is_out_of_budget(self, drive: Drive[SessionState], conversation: AggregateId) -> bool:
        """Count a call in; or state that no further one may be made, if that is so."""
        state = drive.state
        exhausted = await self._spending.begin(conversation, state.request, state.started_at, state.spent)
        if exhausted is None:
            return False
        tag = f"{exhausted.scope}/{exhausted.limit}"
        await drive.append_sibling(conversation, Draft(exhausted, state.request_id, tag))
        return True

    async def _try(self, drive: Drive[SessionState], effect: CallModel, conversation: AggregateId) -> float | None:
        """Make one try; return the wait before the next one, None if there is none."""
        try:
            outcome = await self._tried(drive, effect, conversation)
        except BaseException:
            self._spending.end(conversation, drive.state.request, None)
            raise
        self._spending.end(conversation, drive.state.request, outcome)
        return outcome.data.retry_in_s if isinstance(outcome.data, ModelCallFailed) else None

    async def _tried(self, drive: Drive[SessionState], effect: CallModel, conversation: AggregateId) -> Envelope:
        """State a try, make it, state what came of it; return the last."""
        state = drive.state
        config = state.request.model
        new_messages = compaction.asked(state)[state.sent :]
        digest = (
            context_digest(state.context_digest, new_messages)
            if new_messages or not state.context_digest
            else state.context_digest
        )
        tries = state.call_tries + 1
        model = self._model_for(config)
        session = f"{conversation.prefix}.{drive.attempt}"
        call = replace(_model_call(state, "", effect.turn, tries), session=session)
        target = await model.target(call)
        asked = ModelCallRequested(
            turn=effect.turn,
            tries=tries,
            parent_id=state.continues,
            new_messages=new_messages,
            context_digest=digest,
            overrides=dict(target.overrides),
            backend=target.url,
            route=target.route,
            routing_digest=target.routing_digest,
            activation=state.course.current,
            purpose="summary" if compaction.wants_summary(state) else None,
        )
        tag = f"{effect.turn}/{tries}"
        requested = await drive.append_sibling(conversation, Draft(asked, state.last_call or state.request_id, tag))
        call_id, started = requested.event_id, drive.shell.clock.monotonic()
        retry_in_s: float | None = None
        try:
            boundary.reach("model", "effect_started")
            answer = await drive.interruptible(effect.id, model.complete(replace(call, call_id=call_id)))
            boundary.reach("model", "effect_done")
        except Interrupted:
            failure = Failure(
                kind="cancelled", message="nobody waits for the answer any more", stage="model", terminal=True
            )
        except ModelError as error:
            failure = error.failure
            if not failure.terminal and tries < config.max_tries:
                retry_in_s = backoff_s(tries, call_id, error.retry_after_s)
        else:
            done = ModelCallCompleted(
                request_id=call_id,
                turn=effect.turn,
                message=answer.message,
                stop_reason=answer.stop_reason,
                usage=answer.usage,
                cost_usd=cost_of(config, answer.usage, answer.cost_usd),
                queue_s=None if answer.queue_s is None else round(answer.queue_s, 4),
                duration_s=round(drive.shell.clock.monotonic() - started, 4),
                reply_id=answer.reply_id,
                served_model=answer.served_model,
                **await self._chains.recorded(drive.shell.log_of("model"), conversation, call_id, answer.tokens),
            )
            completed = await drive.append_sibling(conversation, Draft(done, call_id))
            boundary.reach("model", "result_appended")
            return completed
        duration_s = round(drive.shell.clock.monotonic() - started, 4)
        failed = ModelCallFailed(
            request_id=call_id, turn=effect.turn, failure=failure, retry_in_s=retry_in_s, duration_s=duration_s
        )
        return await drive.append_sibling(conversation, Draft(failed, call_id))

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {CallModel: self.call, SettleCall: self.settle}


def _conversation(drive: Drive[SessionState]) -> AggregateId:
    return drive.aggregate.sibling("model", drive.aggregate.key)


def _model_call(state: SessionState, call_id: str, turn: int, tries: int) -> ModelCall:
    return ModelCall(
        call_id=call_id,
        task_id=state.request.task.task_id,
        repeat=state.request.repeat,
        turn=turn,
        tries=tries,
        messages=compaction.asked(state),
        tools=offered(state),
        sampling=state.request.sampling,
        parallel_tool_calls=state.agent.parallel_tool_calls,
    )
