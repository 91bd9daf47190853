"""A program that is launched again: what it asks as before is answered from the log, once each, and what it asks besides is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from actors.gateway.grants import Grant, mint
from actors.gateway.recalling import Recollection
from adapters.harnesses.anew import without, written_anew
from gym_bus.blobs import MemoryBlobs
from gym_bus.event_log import Draft
from gym_bus.subjects import aggregate
from projections import violations
from providers.dialects.folding import Folding
from providers.dialects.sse import EventSplitter
from schemas.config import Budget, Budgets
from schemas.conversation import DialectName, Hosted, Part, Reply, Request, Text, TokenUsage, ToolResult, ToolUse, Turn
from schemas.envelope import Envelope
from schemas.events import (
    BudgetExhausted,
    LaunchRequested,
    ModelCallCompleted,
    ModelCallRecalled,
    ModelCallRequested,
    SandboxRequested,
)
from schemas.harnesses import CodexAgent
from schemas.sandboxes import Bubblewrap
from schemas.values import Message, Usage
from tests.support.gateway_calls import BACKENDS, NAMES, message_of, post, words
from tests.support.gateway_place import KEY, GatewayPlace, gateway_place, log_as
from tests.support.gemini_client import READERS
from tests.support.logs import project
from tests.support.machine_case import envelope

CALL = ToolUse(id="call0", name="shell", arguments='{"command":"ls"}')
USAGE = TokenUsage(input_tokens=3, output_tokens=2, cached_tokens=1)
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}}
FIRST: dict[DialectName, dict[str, Any]] = {
    "chat": {
        "messages": [{"role": "user", "content": "List it."}],
        "tools": [{"type": "function", "function": {"name": "shell", "parameters": TOOL}}],
    },
    "responses": {
        "input": [{"role": "user", "content": "List it."}],
        "tools": [{"type": "function", "name": "shell", "parameters": TOOL, "strict": False}],
    },
    "messages": {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "List it."}],
        "tools": [{"name": "shell", "input_schema": TOOL}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "List it."}]}],
        "tools": [{"functionDeclarations": [{"name": "shell", "parametersJsonSchema": TOOL}]}],
    },
}


def calling(dialect: DialectName) -> Reply:
    parts = (Text(text="Here: "), CALL)
    return Reply(dialect=dialect, id="reply0", model="up", parts=parts, stop_reason="tool_calls", usage=USAGE)


def then(client: DialectName, result: str = "a.txt") -> dict[str, Any]:
    """Return the question that follows the call of `calling`: what the client was asked, what it said, what came of its call."""
    body = FIRST[client]
    match client:
        case "chat":
            function = {"name": CALL.name, "arguments": CALL.arguments}
            call = {"id": CALL.id, "type": "function", "function": function}
            said = {"role": "assistant", "content": "Here: ", "tool_calls": [call]}
            more = [said, {"role": "tool", "tool_call_id": CALL.id, "content": result}]
            return {**body, "messages": [*body["messages"], *more]}
        case "responses":
            call = {"type": "function_call", "call_id": CALL.id, "name": CALL.name, "arguments": CALL.arguments}
            said = {"role": "assistant", "content": [{"type": "output_text", "text": "Here: "}]}
            more = [said, call, {"type": "function_call_output", "call_id": CALL.id, "output": result}]
            return {**body, "input": [*body["input"], *more]}
        case "messages":
            use = {"type": "tool_use", "id": CALL.id, "name": CALL.name, "input": {"command": "ls"}}
            said = {"role": "assistant", "content": [{"type": "text", "text": "Here: "}, use]}
            block = {"type": "tool_result", "tool_use_id": CALL.id, "content": result}
            more = [said, {"role": "user", "content": [block]}]
            return {**body, "messages": [*body["messages"], *more]}
        case "gemini":
            use = {"functionCall": {"id": CALL.id, "name": CALL.name, "args": {"command": "ls"}}}
            done = {"functionResponse": {"id": CALL.id, "name": CALL.name, "response": {"output": result}}}
            more = [{"role": "model", "parts": [{"text": "Here: "}, use]}, {"role": "user", "parts": [done]}]
            return {**body, "contents": [*body["contents"], *more]}


def token(place: GatewayPlace, launch: int, **more: int) -> str:
    return mint(KEY, replace(place.grant, launch=launch, **more))


def read(client: DialectName, answer: httpx.Response) -> Reply:
    """Return the answer, streamed or not, as the client understands it."""
    assert answer.status_code == 200, answer.text
    dialect = READERS[client]
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return dialect.read_reply(answer.json())
    folding, reader = Folding(client), dialect.stream_reader()
    for event in EventSplitter().feed(answer.content):
        for delta in reader.feed(event.name, event.data):
            folding.add(delta)
    assert folding.is_whole
    return folding.reply()


def said(reply: Reply) -> tuple[Any, ...]:
    parts = [part.text if isinstance(part, Text) else (part.id, part.name) for part in reply.parts]  # type: ignore[union-attr]
    return (reply.id, reply.model, reply.stop_reason, *parts)


def recalled(place: GatewayPlace) -> list[ModelCallRecalled]:
    return [e.data for e in place.events(ModelCallRecalled) if isinstance(e.data, ModelCallRecalled)]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("client", NAMES)
async def test_the_answers_of_an_earlier_launch_are_given_again(
    client: DialectName, backend: DialectName, streamed: bool
) -> None:
    """Same words, calls and ids, whether it was streamed then or now; no backend is asked; what is new continues the last of them."""
    async with gateway_place(backend) as place:
        place.upstream.answers = [calling(backend), words("Done.", backend), words("More.", backend)]
        first = read(client, await post(place, client, stream=not streamed, **FIRST[client]))
        second = read(client, await post(place, client, stream=not streamed, **then(client)))
        again = {"token": token(place, 2), "stream": streamed}
        assert said(read(client, await post(place, client, **again, **FIRST[client]))) == said(first)
        assert said(read(client, await post(place, client, **again, **then(client)))) == said(second)
        assert len(place.upstream.bodies) == 2
        calls = [event.event_id for event in place.events(ModelCallRequested)]
        assert [(fact.call_id, fact.turn, fact.activation, fact.launch) for fact in recalled(place)] == [
            (calls[0], 1, 1, 2),
            (calls[1], 2, 1, 2),
        ]
        read(client, await post(place, client, **again, **then(client, result="b.txt")))
        new = place.events(ModelCallRequested)[-1].data
        assert isinstance(new, ModelCallRequested)
        assert (new.parent_id, new.launch, len(place.upstream.bodies)) == (calls[0], 2, 3)


async def test_each_answer_is_given_once_to_a_launch() -> None:
    """Of several to one question the first, then the next, then the model is asked; the launch after that has all of them."""
    async with gateway_place() as place:
        place.upstream.answers = [words("one"), words("two"), words("three")]
        for _ in range(2):
            await post(place)
        answers = [read("chat", await post(place, token=token(place, 2))).parts[0] for _ in range(3)]
        assert answers == [Text(text="one"), Text(text="two"), Text(text="three")]
        assert len(place.upstream.bodies) == 3
        answers = [read("chat", await post(place, token=token(place, 3))).parts[0] for _ in range(3)]
        assert answers == [Text(text="one"), Text(text="two"), Text(text="three")]
        assert (len(place.upstream.bodies), len(recalled(place))) == (3, 5)


async def test_who_takes_the_conversation_over_knows_what_was_given() -> None:
    async with gateway_place(is_doubled=True) as place:
        place.upstream.answers = [words("one"), words("two")]
        for _ in range(2):
            await post(place)
        assert read("chat", await post(place, token=token(place, 2))).parts == (Text(text="one"),)
        place.first_is_silent()
        second = await post(place, token=token(place, 2), url=place.second_url)
        assert read("chat", second).parts == (Text(text="two"),)
        assert len(place.upstream.bodies) == 2


@pytest.mark.parametrize(
    ("grant", "changes"),
    [
        ({"launch": 1}, {}),
        ({"launch": 2, "activation": 2}, {}),
        ({"launch": 2}, {"temperature": 0.5}),
        ({"launch": 2}, {"tools": [{"type": "function", "function": {"name": "look"}}]}),
        ({"launch": 2}, {"messages": [{"role": "user", "content": "hello?"}]}),
        ({"launch": 2}, {"messages": [{"role": "system", "content": "hello"}]}),
    ],
)
async def test_another_question_is_asked_of_the_model(grant: dict[str, int], changes: dict[str, Any]) -> None:
    """The same launch, another activation, another parameter, tool or word."""
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        await post(place)
        await post(place, token=token(place, **grant), **changes)
        assert (len(place.upstream.bodies), recalled(place)) == (2, [])


async def test_what_a_client_calls_itself_is_no_part_of_its_question() -> None:
    """Keys of caches, who asks, what it is for."""
    async with gateway_place("responses") as place:
        place.upstream.answers = [words(dialect="responses")]
        await post(place, "responses", prompt_cache_key="thread-1", metadata={"turn": "1"})
        more = {"prompt_cache_key": "thread-2", "metadata": {"turn": "2"}, "token": token(place, 2)}
        await post(place, "responses", **more)
        assert (len(place.upstream.bodies), len(recalled(place))) == (1, 1)


async def test_an_answer_that_is_given_again_costs_nothing() -> None:
    """A used-up budget refuses what is new, and nothing that is recorded."""
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=2))) as place:
        place.upstream.answers = [words("one"), words("two")]
        for _ in range(2):
            await post(place)
        for _ in range(2):
            read("chat", await post(place, token=token(place, 2)))
        refused = await post(place, token=token(place, 2))
        assert refused.status_code == 400
        assert "2 of 2 model_calls" in message_of("chat", refused)
        assert [e.data.used for e in place.events(BudgetExhausted)] == [2]  # type: ignore[attr-defined]


async def test_a_call_that_came_to_nothing_is_tried_again() -> None:
    async with gateway_place() as place:
        place.upstream.answers = [JSONResponse({"error": {"message": "down"}}, 503), words("one")]
        assert (await post(place)).status_code == 503
        assert read("chat", await post(place, token=token(place, 2))).parts == (Text(text="one"),)
        tries = [e.data.tries for e in place.events(ModelCallRequested)]  # type: ignore[attr-defined]
        assert (tries, recalled(place)) == ([1, 2], [])


async def test_the_token_of_a_launch_ends_with_its_sandbox() -> None:
    """A program that outlived the loss of its machine is told so, and its successor is not."""
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        harness = log_as("harness", place.server, place.codec)
        writer = await harness.claim(place.grant.conversation.sibling("harness", "s1"), 1, None)
        assert writer is not None
        await harness.append(writer, Draft(SandboxRequested(sandbox=Bubblewrap(), number=2), None))
        assert (await post(place)).status_code == 401
        assert (await post(place, token=token(place, 2))).status_code == 200


GRANT = Grant(aggregate("r1", "0-0", "model", "s1"), 1, launch=2)


def result(text: str) -> Turn:
    return Turn(role="tool", parts=(ToolResult(call_id="call0", parts=(Text(text=text),)),))


def asked(event_id: str, turns: tuple[Turn, ...], **more: Any) -> Envelope:
    fields = {"turn": 1, "tries": 1, "parent_id": None, "new_messages": (), "context_digest": event_id, **more}
    return envelope(ModelCallRequested(dialect="chat", new_turns=turns, parameters={"model": "m"}, **fields), event_id)


def answered(call_id: str, *parts: Part, is_unread: bool = False) -> Envelope:
    message = Message(role="assistant", content="")
    fields: dict[str, Any] = {"stop_reason": "stop", "usage": Usage(), "duration_s": 0.1, "is_unread": is_unread}
    done = ModelCallCompleted(request_id=call_id, turn=1, message=message, parts=parts, **fields)
    return envelope(done, f"{call_id}-done")


def test_what_a_program_writes_anew_is_passed_over_and_nothing_else() -> None:
    """How long a command took, and its output's number, for the program that writes them; a word of the output counts."""
    go = Turn(role="user", parts=(Text(text="Go."),))
    told = "Chunk ID: {}\nWall time: {} seconds\nProcess exited with code 0\nOutput:\n{}"
    earlier = asked("c2", (result(told.format("d72d92", "0.0004", "a.txt")),), parent_id="c1")
    events = [asked("c1", (go,)), answered("c1", CALL), earlier, answered("c2", Text(text="Done."))]

    def found(agent: str, text: str) -> str | None:
        memory = Recollection(written_anew(agent))
        for event in events:
            memory.note(event)
        turns = (go, Turn(role="assistant", parts=(CALL,)), result(text))
        answer = memory.find(Request(dialect="chat", model="m", turns=turns), GRANT)
        return answer and answer.request_id

    again = told.format("0a1b2c", "12.5", "a.txt")
    assert found("codex_agent", again) == "c2"
    assert found("pi_agent", again) is None
    assert found("codex_agent", told.format("0a1b2c", "12.5", "b.txt")) is None
    assert found("codex_agent", "x\n" + told.format("d72d92", "0.0004", "a.txt")) is None


def test_an_answer_that_nobody_read_is_given_last() -> None:
    """The program went on with the one that it read."""
    go = Turn(role="user", parts=(Text(text="Go."),))
    memory = Recollection(())
    for event in (asked("c1", (go,)), answered("c1", is_unread=True), asked("c2", (go,)), answered("c2")):
        memory.note(event)
    request = Request(dialect="chat", model="m", turns=(go,))
    given: list[str] = []
    while (answer := memory.find(request, GRANT)) is not None:
        given.append(answer.request_id)
        memory.note(envelope(ModelCallRecalled(call_id=given[-1], turn=1, activation=1, launch=2), f"r{len(given)}"))
    assert given == ["c2", "c1"]


def test_what_may_have_been_a_pause_is_asked_again() -> None:
    """The log has the same word for the two ends."""
    go = Turn(role="user", parts=(Text(text="Go."),))
    for dialect, is_found in (("messages", False), ("responses", True)):
        item = Hosted.model_validate({"dialect": dialect, "item": {"type": "search"}})
        memory = Recollection(())
        for event in (asked("c1", (go,)), answered("c1", item)):
            memory.note(event)
        assert (memory.find(Request(dialect="chat", model="m", turns=(go,)), GRANT) is not None) == is_found


def test_a_users_words_are_never_passed_over() -> None:
    turn = Turn(role="user", parts=(Text(text="Chunk ID: d72d92\nWall time: 0.1 seconds\n"),))
    assert without(written_anew("codex_agent"), turn) == turn


async def test_what_was_given_again_and_what_was_paid_twice_is_counted() -> None:
    """Of three answers the second launch is given one, and asks for another two: in SQL, by rollout and by call."""
    async with gateway_place() as place:
        place.upstream.answers = [calling("chat"), words("Done."), words("More.")]
        await post(place, **FIRST["chat"])
        await post(place, **then("chat"))
        for number in (1, 2):
            await launched(place, number)
        await post(place, token=token(place, 2), **FIRST["chat"])
        await post(place, token=token(place, 2), **then("chat", result="b.txt"))
        store = project(list(place.server.events), MemoryBlobs())
    assert violations(store) == {}
    query = "select calls_recalled, calls_repaid, model_calls from rollouts where rollout_id = '0-0'"
    assert store.execute(query).fetchall() == [(1, 1, 3)]
    assert store.execute("select launch, count(*) from model_calls group by all order by all").fetchall() == [
        (1, 2),
        (2, 1),
    ]
    assert store.execute("select number, state from launches order by number").fetchall() == [(1, "open"), (2, "open")]
    store.execute("insert into model_call_recalled select * from model_call_recalled")
    assert list(violations(store)) == ["i6_effect_once"]


async def launched(place: GatewayPlace, number: int) -> None:
    """State that the program of the place's session is launched in its `number`-th sandbox."""
    harness = log_as("harness", place.server, place.codec)
    where = place.grant.conversation.sibling("harness", "s1")
    writer = await harness.claim_over(where, 1, None, lambda _: False)
    asked = LaunchRequested(agent=CodexAgent(), activation=1, prompt="Do it.", model="m", timeout_s=9, number=number)
    await harness.append(writer, Draft(asked, None, str(number)))
