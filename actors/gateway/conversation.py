"""The calls of one session in the log: claimed by this process, appended one after the other, rebuilt from what is there already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from actors.budget import RunSpending, Spent, cost_of
from actors.gateway.answers import as_message, parameters_of, tools_digest
from actors.gateway.grants import Grant
from actors.gateway.lineage import Lineage, Place
from actors.gateway.recalling import Recollection
from actors.gateway.sessions import OpenSession
from actors.gateway.unknown_fields import OTHERS, UnknownFields, said_in
from actors.token_chains import TokenChains
from adapters.harnesses.anew import written_anew
from gym_bus.errors import Fenced, GymBusError
from gym_bus.event_log import Draft, EventLog, Held, Writer
from gym_bus.runtime.presence import Presence
from providers.dialects.digests import continued_reply
from providers.models.base import Target
from providers.models.dialect_model import STOPS, usage_of
from providers.models.evidence import TokenEvidence
from providers.models.recorded_answer import parts_of
from schemas.base import Event
from schemas.conversation import Part, Reply, Request
from schemas.envelope import Envelope
from schemas.events import (
    BudgetExhausted,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallLate,
    ModelCallLost,
    ModelCallRecalled,
    ModelCallRequested,
)
from schemas.values import Failure, Usage

BODY_KEPT: Final = 4_000


class OverBudget(GymBusError):
    """No further call may be made; `exhausted` says which budget is used up."""

    def __init__(self, exhausted: BudgetExhausted) -> None:
        """Keep the fact."""
        super().__init__(f"{exhausted.scope}: {exhausted.limit}")
        self.exhausted = exhausted


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call whose request is in the log: the event's id, and where it stands."""

    id: str
    place: Place


@dataclass(frozen=True, slots=True)
class Times:
    """How long a call took, in seconds; `first_token_s` is None for one that was not streamed, or said nothing.

    `queue_s` is how long it waited for its turn to be sent.
    """

    total_s: float
    first_token_s: float | None = None
    queue_s: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a call: the answer, its times, and what the backend said about its tokens and its price."""

    reply: Reply
    times: Times
    tokens: TokenEvidence | None = None
    cost_usd: float | None = None
    is_unread: bool = False
    was_shown: bool = False


class Conversation:
    """See the module.

    What appends raises `Held` while another gateway that lives has the conversation, and `Fenced` once one has taken it over; it may be
    asked again then, and when the log could not be reached: it is read anew, and calls that are still under way here stay open.
    """

    def __init__(
        self,
        log: EventLog,
        grant: Grant,
        session: OpenSession,
        spending: RunSpending,
        presence: Presence,
    ) -> None:
        """Record calls of the session that `grant` is for, unless another gateway that lives, as far as `presence` knows, has it."""
        self._log = log
        self._grant = grant
        self._session = session
        self._spending = spending
        self._presence = presence
        self._writer: Writer | None = None
        self._turn_to_write = asyncio.Lock()
        self._under_way: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        """Know nothing of the conversation."""
        self._spent = Spent()
        self._exhausted: set[tuple[str, str]] = set()
        self._lineage = Lineage()
        self._tokens = TokenChains()
        self._tools: dict[str | None, str | None] = {}
        self._others = UnknownFields()
        self._open: dict[str, int] = {}
        self._earlier: Recollection | None = None

    async def recall(self, request: Request, grant: Grant) -> ModelCallCompleted | None:
        """Return what an earlier launch of the program was answered, and state that it is given to this one; None if there is nothing.

        Neither a backend is asked nor a budget used.
        """
        if grant.launch == 1:
            return None
        async with self._turn_to_write:
            await self._claimed()
            if self._earlier is None:
                self._earlier = await self._read_again()
            found = self._earlier.find(request, grant)
            if found is not None:
                recalled = ModelCallRecalled(
                    call_id=found.request_id, turn=found.turn, activation=grant.activation, launch=grant.launch
                )
                self._note(await self._append(Draft(recalled, found.request_id, str(grant.launch))))
            return found

    async def _read_again(self) -> Recollection:
        """Return what the log has of this conversation's questions: asked for only where a program was launched again."""
        earlier = Recollection(written_anew(self._session.request.agent.type))
        async for event in self._log.read(f"{self._grant.conversation.prefix}.>"):
            earlier.note(event)
        return earlier

    async def ask(
        self,
        request: Request,
        target: Target,
        dropped: Sequence[str] = (),
        invocation: str | None = None,
        grant: Grant | None = None,
    ) -> OpenCall:
        """State that the model is asked at `target`; only what is new since the call it continues is stored.

        `dropped` names the fields that the backend is not told, `invocation` who of the client's asks, `grant` what its token is for
        (by default as the conversation's). Raises `OverBudget` for a call that no budget has room for.
        """
        async with self._turn_to_write:
            await self._claimed()
            await self._count_in()
            try:
                return await self._asked(request, target, dropped, invocation, grant or self._grant)
            except BaseException:
                self._count_out(None)
                raise

    async def _asked(
        self, request: Request, target: Target, dropped: Sequence[str], invocation: str | None, grant: Grant
    ) -> OpenCall:
        place = self._lineage.place(request.turns, invocation, continued_reply(request))
        digest, others = tools_digest(request), self._others.new(said_in(request))
        is_known = self._tools.get(place.parent_id) == digest and place.parent_id is not None
        asked = ModelCallRequested(
            turn=place.turn,
            tries=place.tries,
            parent_id=place.parent_id,
            new_messages=(),
            context_digest=place.digest,
            dialect=request.dialect,
            new_turns=request.turns[place.known_turns :],
            tools=None if is_known else request.tools,
            tools_digest=digest,
            parameters={**parameters_of(request), **({OTHERS: others} if others else {})},
            gaps=(*place.gaps, *(f"dropped:{name}" for name in dropped)),
            overrides=dict(target.overrides),
            backend=target.url,
            route=target.route,
            routing_digest=target.routing_digest,
            invocation=invocation,
            activation=grant.activation,
            launch=grant.launch,
        )
        tag = f"{place.digest[:24]}/{place.tries}"
        event = await self._append(Draft(asked, place.parent_id or self._session.request_id, tag))
        self._note(event)
        self._under_way.add(event.event_id)
        return OpenCall(event.event_id, place)

    async def complete(self, call: OpenCall, answered: Answered) -> None:
        """State what the model answered; an answer that is refused, because another process has the conversation, is stated as late."""
        reply, times = answered.reply, answered.times
        message, parts = as_message(reply.parts)
        has_usage, usage = reply.usage is not None, usage_of(reply)
        if not has_usage and answered.tokens:
            usage = Usage(input_tokens=len(answered.tokens.prompt), output_tokens=len(answered.tokens.generated))
        done = ModelCallCompleted(
            request_id=call.id,
            turn=call.place.turn,
            message=message,
            parts=parts,
            stop_reason=STOPS[reply.stop_reason],
            stop_sequence=reply.stop_sequence,
            usage=usage,
            has_usage=has_usage,
            duration_s=round(times.total_s, 4),
            first_token_s=_rounded(times.first_token_s),
            queue_s=_rounded(times.queue_s),
            reply_id=reply.id,
            served_model=reply.model,
            is_unread=answered.is_unread,
            cost_usd=cost_of(self._session.request.model, usage if has_usage else None, answered.cost_usd),
            **self._tokens.fields(call.id, answered.tokens),
        )
        try:
            await self._answer(call, done)
        except Fenced:
            late = ModelCallLate(
                request_id=call.id,
                turn=call.place.turn,
                parts=reply.parts,
                usage=usage,
                was_shown=answered.was_shown,
            )
            await self._state_late(late)
            raise

    async def fail(
        self,
        call: OpenCall,
        failure: Failure,
        times: Times,
        *,
        retry_in_s: float | None = None,
        status: int | None = None,
        body: str | None = None,
        parts: Sequence[Part] = (),
    ) -> None:
        """State that a try came to nothing, with what the backend said and what had come of its answer."""
        failed = ModelCallFailed(
            request_id=call.id,
            turn=call.place.turn,
            failure=failure,
            retry_in_s=retry_in_s,
            duration_s=round(times.total_s, 4),
            status=status,
            body=body[:BODY_KEPT] if body else None,
            parts=tuple(parts) or None,
        )
        await self._answer(call, failed)

    async def _count_in(self) -> None:
        """Raise `OverBudget` if nothing more may be asked; the first refusal by a limit is stated."""
        session, where, under_way = self._session, self._grant.conversation, len(self._open)
        found = await self._spending.begin(where, session.request, session.asked_at, self._spent, under_way)
        if found is None:
            return
        if (found.scope, found.limit) not in self._exhausted:
            tag = f"{found.scope}/{found.limit}"
            self._note(await self._append(Draft(found, session.request_id, tag)))
        raise OverBudget(found)

    def _count_out(self, answered: Envelope | None) -> None:
        self._spending.end(self._grant.conversation, self._session.request, answered)

    async def _state_late(self, late: ModelCallLate) -> None:
        """Keep an answer that nothing builds on, in an aggregate that nobody else writes."""
        where = self._grant.conversation
        beside = where.sibling(where.actor, f"{where.key}-late-{late.request_id}")
        await self._log.append_alone(beside, self._grant.attempt, Draft(late, late.request_id))

    async def _answer(self, call: OpenCall, data: Event) -> None:
        event: Envelope | None = None
        try:
            async with self._turn_to_write:
                if call.id in self._under_way:
                    await self._claimed()
                if call.id not in self._under_way:
                    msg = f"call {call.id} was given up when another gateway took the session"
                    raise Fenced(msg)
                event = await self._append(Draft(data, call.id))
                self._note(event)
        except Held as error:
            raise Fenced(str(error)) from error
        finally:
            self._under_way.discard(call.id)
            self._count_out(event)

    async def _append(self, draft: Draft) -> Envelope:
        if self._writer is None:
            msg = "a conversation is claimed before it is written"
            raise RuntimeError(msg)
        try:
            return await self._log.append(self._writer, draft)
        except Fenced:
            self._writer = None
            self._under_way.clear()
            raise
        except BaseException:  # whether it was stored is not known
            self._writer = None
            raise

    async def _claimed(self) -> None:
        """Become the writer, if we are not: fold what is in the log, and state calls that an earlier writer left open as lost."""
        if self._writer is not None:
            return
        where, request_id = self._grant.conversation, self._session.request_id
        writer = await self._log.claim(where, self._grant.attempt, request_id)
        if writer is None:
            self._forget()  # an earlier reading may have broken off in the middle
            try:
                writer = await self._log.claim_over(where, self._grant.attempt, request_id, self._is_other_alive)
            except Held as error:
                raise Held(error.owner, self._presence.remaining_s(error.owner)) from error
            async for event in self._log.read(f"{where.prefix}.>"):
                self._note(event)
        self._writer = writer
        for call_id, turn in [(c, t) for c, t in self._open.items() if c not in self._under_way]:
            self._note(await self._append(Draft(ModelCallLost(request_id=call_id, turn=turn), call_id)))

    def _is_other_alive(self, worker: str) -> bool:
        return worker != self._log.worker and self._presence.is_alive(worker)

    def _note(self, event: Envelope) -> None:
        """Take in an event of this conversation."""
        data = event.data
        self._tokens.note(event)
        if self._earlier is not None:
            self._earlier.note(event)
        match data:
            case ModelCallRequested():
                self._lineage.ask(event.event_id, data.context_digest, data.invocation)
                self._tools[event.event_id] = data.tools_digest
                self._others.note(data.parameters)
                self._open[event.event_id] = data.turn
            case ModelCallCompleted():
                self._open.pop(data.request_id, None)
                self._spent = self._spent.plus(data)
                self._lineage.answer(data.request_id, parts_of(data), data.reply_id)
            case ModelCallFailed() | ModelCallLost():
                self._open.pop(data.request_id, None)
            case BudgetExhausted():
                self._exhausted.add((data.scope, data.limit))
            case _:
                pass


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
