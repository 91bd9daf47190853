"""Which call continued which, and what of a conversation is stored."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.gateway.conversation import Answered, Times
from actors.gateway.lineage import AMBIGUOUS, Lineage
from providers.models.base import Target
from schemas.conversation import (
    CacheHint,
    Part,
    Reasoning,
    Reply,
    Request,
    Text,
    TokenUsage,
    Tool,
    ToolResult,
    ToolUse,
    Turn,
)
from schemas.events import ModelCallCompleted, ModelCallLost, ModelCallRequested
from tests.support.gateway_place import conversation_in, gateway_place
from tests.support.long_conversation import log_bytes

TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}]
TIMES = Times(0.1)
TARGET = Target("http://upstream")


def user(text: str, **more: Any) -> Turn:
    return Turn(role="user", parts=(Text(text=text, **more),))


def said(*parts: Part) -> Turn:
    return Turn(role="assistant", parts=parts)


def result(call_id: str, text: str) -> Turn:
    return Turn(role="tool", parts=(ToolResult(call_id=call_id, parts=(Text(text=text),)),))


def asked(*turns: Turn, **more: Any) -> Request:
    return Request(dialect="chat", model="m", turns=turns, **more)


def reply(*parts: Part, n: int = 0) -> Reply:
    usage = TokenUsage(input_tokens=1, output_tokens=1)
    return Reply(dialect="chat", id=f"r{n}", model="m", parts=parts, stop_reason="stop", usage=usage)


def test_what_clients_change_changes_nothing() -> None:
    """Arguments written anew, an id without its underscores, lost thoughts, moved cache hints, a string as a list of texts."""
    lineage = Lineage()
    call = ToolUse(id="call_1a", name="shell", arguments='{"command": "ls",  "n": 1}')
    first = lineage.place([user("go")])
    lineage.ask("c1", first.digest)
    lineage.answer("c1", [Reasoning(texts=("hm",)), Text(text="I look."), call])
    again = ToolUse(id="call1a", name="shell", arguments='{"n":1,"command":"ls"}')
    echoed = said(Text(text="I ", cache=CacheHint()), Text(text="look."), again)
    place = lineage.place([user("go", cache=CacheHint(ttl="1h")), echoed, result("call1a", "a.txt")])
    assert (place.parent_id, place.known_turns, place.turn, place.tries, place.gaps) == ("c1", 2, 2, 1, ())


def test_what_is_new_begins_a_branch_and_what_fits_two_says_so() -> None:
    """A rewritten history has no parent; the same question is a further try; two equal answers are a gap."""
    lineage = Lineage()
    for call_id in ("c1", "c2"):
        place = lineage.place([user("go")])
        lineage.ask(call_id, place.digest)
        lineage.answer(call_id, [Text(text="yes")])
    assert (place.turn, place.tries) == (1, 2)
    both = lineage.place([user("go"), said(Text(text="yes")), user("more")])
    assert (both.parent_id, both.gaps) == ("c2", (AMBIGUOUS,))
    compacted = lineage.place([user("summary: go, yes"), user("more")])
    assert (compacted.parent_id, compacted.known_turns, compacted.turn) == (None, 0, 2)


@given(st.lists(st.tuples(st.integers(0, 6), st.text("abc", max_size=3)), min_size=1, max_size=25), st.booleans())
def test_every_call_finds_the_call_that_it_continues(steps: list[tuple[int, str]], drops: bool) -> None:
    """Random trees: each call continues any earlier one (or none) with new words; its parent is that one, or one that said the same."""
    lineage = Lineage()
    whole: list[tuple[tuple[Turn, ...], str]] = []
    for n, (back, text) in enumerate(steps):
        base, parent = whole[-1 - back % len(whole)] if whole and back else ((), None)
        turns = (*base, user(f"{n} {text}"))
        place = lineage.place(turns)
        assert place.parent_id == parent
        assert place.known_turns == len(base)
        lineage.ask(f"c{n}", place.digest)
        answer: tuple[Part, ...] = (Reasoning(texts=("hm",)), Text(text=f"answer {n}"))
        lineage.answer(f"c{n}", answer)
        whole.append(((*turns, said(*answer[1:] if drops else answer)), f"c{n}"))


async def test_a_conversation_is_rebuilt_from_the_log() -> None:
    """Another process takes it over: what was open is lost, the next call finds its parent, nothing is stored twice."""
    async with gateway_place() as place:
        first = conversation_in(place, "g0.a")
        tools = (Tool(name="shell"),)
        call = await first.ask(asked(user("go"), tools=tools), TARGET)
        await first.complete(call, Answered(reply(Text(text="yes"), n=1), TIMES))
        await first.ask(asked(user("go"), said(Text(text="yes")), user("more"), tools=tools), TARGET)
        second = conversation_in(place, "g1.b")
        retried = await second.ask(asked(user("go"), said(Text(text="yes")), user("more"), tools=tools), TARGET)
        assert retried.place.parent_id == call.id
        assert (retried.place.turn, retried.place.tries) == (2, 2)
        assert len(place.events(ModelCallLost)) == 1
        events = [e.data for e in place.events(ModelCallRequested)]
        assert [len(e.new_turns) for e in events if isinstance(e, ModelCallRequested)] == [1, 1, 1]
        assert [e.tools is not None for e in events if isinstance(e, ModelCallRequested)] == [True, False, False]


async def test_the_log_grows_with_a_conversation_and_not_with_its_square() -> None:
    """200 turns, tokens and all, cost hardly more than twice what 100 cost (`log_growth_200_over_100_turns`, goal at most 2.2)."""
    assert await log_bytes(200) / await log_bytes(100) <= 2.2


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_loop_with_tools_is_one_chain(streamed: bool) -> None:
    """Each call names the one before, and the answers' calls and thoughts are whole in the log."""
    async with gateway_place() as place:
        use = ToolUse(id="callA", name="shell", arguments='{"command": "ls"}')
        place.upstream.answers = [
            reply(Reasoning(texts=("I should look.",)), use, n=1).model_copy(update={"stop_reason": "tool_calls"}),
            reply(Text(text="a.txt"), n=2),
        ]
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What is there?"}]
        headers = {"authorization": f"Bearer {place.token}"}
        async with httpx.AsyncClient() as http:
            for _ in range(2):
                body = {"model": "m", "messages": messages, "tools": TOOLS, "stream": streamed}
                answer = await http.post(f"{place.url}/v1/chat/completions", json=body, headers=headers)
                assert answer.status_code == 200
                compact = json.dumps(json.loads(use.arguments), separators=(",", ":"))
                function = {"name": "shell", "arguments": compact}
                messages += [
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "callA", "type": "function", "function": function}]},
                    {"role": "tool", "tool_call_id": "callA", "content": "a.txt"},
                ]  # fmt: skip
        first, second = place.events(ModelCallRequested)
        assert isinstance(second.data, ModelCallRequested)
        assert second.data.parent_id == first.event_id
        assert [t.role for t in second.data.new_turns] == ["tool"]
        answered = place.events(ModelCallCompleted)[0].data
        assert isinstance(answered, ModelCallCompleted)
        assert answered.parts is not None
        assert answered.parts[0] == Reasoning(texts=("I should look.",))
        assert answered.message.tool_calls[0].arguments == use.arguments


def test_who_asks_tells_equal_parents_apart() -> None:
    """Two sub-agents that were told and said the same: each goes on from its own; without a name, neither is sure."""
    lineage = Lineage()
    for name in ("a", "b"):
        place = lineage.place([user("look")], f"thread-id:{name}")
        lineage.ask(name, place.digest, f"thread-id:{name}")
        lineage.answer(name, (Text(text="seen"),))
    turns = [user("look"), said(Text(text="seen")), user("and now?")]
    assert [lineage.place(turns, f"thread-id:{name}").parent_id for name in ("a", "b")] == ["a", "b"]
    assert lineage.place(turns, "thread-id:a").gaps == ()
    assert lineage.place(turns).gaps == (AMBIGUOUS,)
    assert lineage.place(turns, "thread-id:c").gaps == (AMBIGUOUS,)


async def test_the_log_says_who_asked() -> None:
    """Our own header, or the one by which an agent tells its threads apart."""
    async with gateway_place() as place, httpx.AsyncClient() as http:
        place.upstream.answers = [reply(Text(text="yes"))]
        for headers in ({"thread-id": "t1"}, {"thread-id": "t1", "x-gym-bus-invocation": "x" * 500}, {}):
            sent = {"authorization": f"Bearer {place.token}", **headers}
            body = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
            assert (await http.post(f"{place.url}/v1/chat/completions", json=body, headers=sent)).status_code == 200
        told = [e.data.invocation for e in place.events(ModelCallRequested) if isinstance(e.data, ModelCallRequested)]
        assert told == ["thread-id:t1", f"x-gym-bus-invocation:{'x' * 128}", None]
