"""The calls of one session in the log: claimed by this process, appended one after the other, rebuilt from what is there already."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pydantic_core

from actors.gateway.grants import Grant
from actors.gateway.lineage import Lineage, Place
from gym_bus.event_log import Draft, EventLog, Writer
from providers.models.dialect_model import STOPS, usage_of
from schemas.base import Event
from schemas.conversation import Part, Reply, Request, Text, ToolUse
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallLost, ModelCallRequested
from schemas.values import Failure, Message, ToolCall

BODY_KEPT: Final = 4_000
PARAMETERS: Final = frozenset(Request.model_fields) - {"dialect", "turns", "tools", "others"}


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call whose request is in the log: the event's id, and where it stands."""

    id: str
    place: Place


@dataclass(frozen=True, slots=True)
class Times:
    """How long a call took, in seconds; `first_token_s` is None for one that was not streamed, or said nothing."""

    total_s: float
    first_token_s: float | None = None


class Conversation:
    """See the module. Every method that appends raises `Fenced` once another process has claimed the conversation."""

    def __init__(self, log: EventLog, grant: Grant, request_id: str) -> None:
        """Record calls of the session that `grant` is for; `request_id` opened it."""
        self._log = log
        self._grant = grant
        self._request_id = request_id
        self._lineage = Lineage()
        self._tools: dict[str | None, str | None] = {}
        self._open: dict[str, int] = {}
        self._writer: Writer | None = None
        self._turn_to_write = asyncio.Lock()

    async def ask(self, request: Request, dropped: Sequence[str] = ()) -> OpenCall:
        """State that the model is asked; only what is new since the call it continues is stored.

        `dropped` names the fields that the backend is not told.
        """
        async with self._turn_to_write:
            await self._claimed()
            place = self._lineage.place(request.turns)
            tools_digest = _tools_digest(request)
            is_known = self._tools.get(place.parent_id) == tools_digest and place.parent_id is not None
            asked = ModelCallRequested(
                turn=place.turn,
                tries=place.tries,
                parent_id=place.parent_id,
                new_messages=(),
                context_digest=place.digest,
                dialect=request.dialect,
                new_turns=request.turns[place.known_turns :],
                tools=None if is_known else request.tools,
                tools_digest=tools_digest,
                parameters=request.model_dump(mode="json", include=set(PARAMETERS), exclude_defaults=True),
                gaps=(*place.gaps, *(f"dropped:{name}" for name in dropped)),
            )
            tag = f"{place.digest[:24]}/{place.tries}"
            event = await self._append(Draft(asked, place.parent_id or self._request_id, tag))
            self._note(event)
            return OpenCall(event.event_id, place)

    async def complete(self, call: OpenCall, reply: Reply, times: Times, *, is_unread: bool = False) -> None:
        """State what the model answered."""
        message, parts = _as_message(reply.parts)
        done = ModelCallCompleted(
            request_id=call.id,
            turn=call.place.turn,
            message=message,
            parts=parts,
            stop_reason=STOPS[reply.stop_reason],
            stop_sequence=reply.stop_sequence,
            usage=usage_of(reply),
            duration_s=round(times.total_s, 4),
            first_token_s=None if times.first_token_s is None else round(times.first_token_s, 4),
            reply_id=reply.id,
            served_model=reply.model,
            is_unread=is_unread,
        )
        await self._answer(call, done)

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

    async def _answer(self, call: OpenCall, data: Event) -> None:
        async with self._turn_to_write:
            self._note(await self._append(Draft(data, call.id)))

    async def _append(self, draft: Draft) -> Envelope:
        if self._writer is None:
            msg = "a conversation is claimed before it is written"
            raise RuntimeError(msg)
        return await self._log.append(self._writer, draft)

    async def _claimed(self) -> None:
        """Become the writer at the first call: fold what is in the log, and state calls that an earlier writer left open as lost."""
        if self._writer is not None:
            return
        where = self._grant.conversation
        writer = await self._log.claim(where, self._grant.attempt, self._request_id)
        if writer is None:
            writer = await self._log.claim_over(where, self._grant.attempt, self._request_id)
            async for event in self._log.read(f"{where.prefix}.>"):
                self._note(event)
        self._writer = writer
        for call_id, turn in list(self._open.items()):
            self._note(await self._append(Draft(ModelCallLost(request_id=call_id, turn=turn), call_id)))

    def _note(self, event: Envelope) -> None:
        """Take in an event of this conversation."""
        match event.data:
            case ModelCallRequested():
                self._lineage.ask(event.event_id, event.data.context_digest)
                self._tools[event.event_id] = event.data.tools_digest
                self._open[event.event_id] = event.data.turn
            case ModelCallCompleted():
                self._open.pop(event.data.request_id, None)
                self._lineage.answer(event.data.request_id, parts_of(event.data))
            case ModelCallFailed() | ModelCallLost():
                self._open.pop(event.data.request_id, None)
            case _:
                pass


def parts_of(completed: ModelCallCompleted) -> tuple[Part, ...]:
    """Return all that the model said in a recorded answer."""
    if completed.parts is not None:
        return completed.parts
    message = completed.message
    words = (Text(text=message.content),) if message.content is not None else ()
    return (*words, *(ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in message.tool_calls))


def _as_message(parts: Sequence[Part]) -> tuple[Message, tuple[Part, ...] | None]:
    """Return an answer as a plain message, and its parts where that does not hold all of them."""
    words = [part.text for part in parts if isinstance(part, Text)]
    calls = tuple(ToolCall(id=p.id, name=p.name, arguments=p.arguments) for p in parts if isinstance(p, ToolUse))
    message = Message(role="assistant", content="".join(words) if words else None, tool_calls=calls)
    plain: list[Part] = [Text(text=message.content)] if message.content is not None else []
    plain += [ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in calls]
    return message, None if plain == list(parts) else tuple(parts)


def _tools_digest(request: Request) -> str | None:
    if request.tools is None:
        return None
    offered: list[Any] = [tool.model_dump(mode="json", exclude={"cache"}) for tool in request.tools]
    return hashlib.sha256(pydantic_core.to_json(offered)).hexdigest()
