"""A conversation said in another dialect is the same conversation: what can be said at all arrives whole, there and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.gateway.lineage import turn_digest
from providers.dialects.base import Unexpressible
from providers.dialects.catalog import DIALECTS
from providers.dialects.cutting import without_cut_call
from providers.dialects.folding import fold
from providers.dialects.sse import EventSplitter
from providers.dialects.unfolding import unfold
from schemas.conversation import (
    Delta,
    DialectName,
    File,
    Part,
    Refusal,
    Reply,
    Request,
    Text,
    Tool,
    ToolResult,
    ToolUse,
    Turn,
)
from tests.support import chat_conversations, gemini_conversations, messages_conversations, responses_conversations
from tests.support.gateway_calls import BACKENDS, NAMES
from tests.support.gemini_client import READERS

SAID: dict[DialectName, Any] = {
    "chat": chat_conversations, "responses": responses_conversations, "messages": messages_conversations,
    "gemini": gemini_conversations,
}  # fmt: skip
ASKED = [(client, backend) for client in NAMES for backend in BACKENDS if client != backend]
ANSWERED = [(backend, client) for backend in BACKENDS for client in NAMES if client != backend]
FEW = settings(derandomize=True, max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def essence(request: Request) -> dict[str, Any]:
    """Return what a model learns from a request: turns in their compared form, tools, and how it is to answer."""
    turns: list[tuple[str, list[Part]]] = []
    for turn in request.turns:
        role = "system" if turn.role == "developer" else turn.role
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(turn.parts)
        else:
            turns.append((role, list(turn.parts)))
    tools = [(t.name, t.description or None, _schema(t)) for t in request.tools or () if isinstance(t, Tool)]
    return {
        "turns": [turn_digest(role, parts) for role, parts in turns if _is_said(parts)],
        "tools": sorted(tools, key=str),
        "choice": request.tool_choice if request.tools else None,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stop": request.stop or None,
        "schema": request.output.schema_ if request.output else None,
    }


def _schema(tool: Tool) -> dict[str, Any]:
    """Return a tool's schema; one that says nothing is like none."""
    schema = tool.parameters or {}
    return {} if schema == {"type": "object", "properties": {}} else schema


def _is_said(parts: list[Part]) -> bool:
    return any(not (isinstance(p, Text) and not p.text) and p.type != "reasoning" for p in parts)


def crossed(request: Request, to: DialectName) -> Request | None:
    """Return a request as a backend of another dialect reads it, None if it cannot be said there."""
    try:
        return DIALECTS[to].read_request(DIALECTS[to].write_request(request).body)
    except Unexpressible as error:
        return None if error.field else request.model_copy(update={"model": "an error without a field"})


@pytest.mark.parametrize(("here", "there"), ASKED)
@FEW
@given(data=st.data())
def test_what_can_be_said_elsewhere_is_said_whole(here: DialectName, there: DialectName, data: st.DataObject) -> None:
    """Turns, calls, results, tools and settings are the same after the crossing, and after the way back."""
    request = data.draw(SAID[here].requests())
    if (over := crossed(request, there)) is not None:
        assert essence(over) == essence(request)
        if here in DIALECTS and (back := crossed(over, here)) is not None:
            assert essence(back) == essence(request)


@pytest.mark.parametrize(("here", "there"), ANSWERED)
@FEW
@given(data=st.data())
def test_an_answer_that_can_be_said_elsewhere_is_said_whole(
    here: DialectName, there: DialectName, data: st.DataObject
) -> None:
    """The words and the calls of an answer are the same for a client of another dialect, whole and streamed."""
    reply = data.draw(SAID[here].replies())
    dialect = READERS[there]
    for is_streamed, said in ((False, _whole), (True, _streamed)):
        request = Request(dialect=there, model="m", turns=(), is_streamed=is_streamed, wants_usage=True)
        try:
            over = said(dialect, reply, request)
        except Unexpressible:
            continue
        is_told_whole = there != "gemini" and (there != "messages" or is_streamed)
        told = [part for _, part in without_cut_call(reply.parts, reply.stop_reason)]
        assert _is_same(over, reply if is_told_whole else reply.replaced(parts=tuple(told)))
        assert over.usage is None or reply.usage is None or over.usage.output_tokens == reply.usage.output_tokens


def _whole(dialect: Any, reply: Reply, request: Request) -> Reply:
    found: Reply = dialect.read_reply(dialect.write_reply(reply, request))
    return found


def _streamed(dialect: Any, reply: Reply, request: Request) -> Reply:
    writer, reader, splitter = dialect.stream_writer(request), dialect.stream_reader(), EventSplitter()
    deltas: list[Delta] = []
    for delta in unfold(reply):
        for event in splitter.feed(writer.write(delta)):
            deltas += reader.feed(event.name, event.data)
    return fold([*deltas, *reader.end()], dialect.name)


def _is_same(one: Reply, other: Reply) -> bool:
    """Say whether two answers hold the same calls and words; a dialect may have one place for all refusing words, or none."""
    kinds: tuple[tuple[type[Text | Refusal], ...], ...] = ((Text, Refusal), (Text,), (Refusal,))
    in_order, words, refusing = (_words(one, *k) == _words(other, *k) for k in kinds)
    return _calls(one) == _calls(other) and (in_order or (words and refusing))


def _words(reply: Reply, *kinds: type[Text | Refusal]) -> str:
    return "".join(p.text for p in reply.parts if isinstance(p, kinds))


def _calls(reply: Reply) -> list[tuple[str, str]]:
    return [(p.name, turn_digest("assistant", [p])) for p in reply.parts if isinstance(p, ToolUse)]


def test_a_document_of_words_is_the_same_document_as_a_file_of_them() -> None:
    """Messages sends its words, Responses a file: whoever compares what was said finds no difference."""
    use = Turn(role="assistant", parts=(ToolUse(id="t0", name="f", arguments="{}"),))
    for words in ("", "some words", "слова"):
        result = ToolResult(call_id="t0", parts=(File(text=words),), is_plain=False)
        request = Request(
            dialect="messages", model="m", turns=(use, Turn(role="tool", parts=(result,))), max_output_tokens=1
        )
        over = crossed(request, "responses")
        assert over is not None
        assert essence(over) == essence(request)
