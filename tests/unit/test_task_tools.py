"""Tools of a task through the gateway: listed and called by MCP and by plain HTTP, each call once, whoever is killed when."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from actors.gateway import tool_calls
from actors.gateway.grants import mint
from actors.harness import settling
from gym_bus.clock import SystemClock
from gym_bus.errors import Permanent
from schemas.events import (
    TaskToolCallCompleted,
    TaskToolCallFailed,
    TaskToolCallLost,
    TaskToolCallReplayed,
    TaskToolCallRequested,
)
from tests.support.gateway_place import KEY, log_as
from tests.support.nested import nested
from tests.support.tool_place import Far, ToolPlace, tool_place
from tools.task_answers import LATE
from tools.task_tools import Ran


def records(at: ToolPlace) -> list[Any]:
    """Return what calls left in the environment."""
    return [event.data.record for event in at.place.events(TaskToolCallCompleted)]  # type: ignore[attr-defined]


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_tools_are_listed_and_called_by_mcp() -> None:
    """Each call is a request and its answer in the log, with what it left and how long it took."""
    async with tool_place(Far()) as at:
        begun = await at.mcp("initialize", protocolVersion="2025-06-18")
        assert begun["result"]["protocolVersion"] == "2025-06-18"
        assert [tool["name"] for tool in (await at.mcp("tools/list"))["result"]["tools"]] == ["note", "lookup", "far"]
        assert await at.call("note", {"text": "42"}, id=2) == ("Noted.", False)
        assert await at.call("lookup", {"key": "b"}, id=3) == ('[2, "two"]', False)
        assert await at.call("lookup", {"key": "z"}, id=4) == ("There is no entry 'z'.", True)
        assert await at.mcp("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}}
        asked = at.place.events(TaskToolCallRequested)
        done = at.place.events(TaskToolCallCompleted)
        assert [event.data.request_id for event in done] == [event.event_id for event in asked]  # type: ignore[attr-defined]
        assert records(at) == ["42", None, None]
        assert all(0 <= event.data.duration_s < 5 for event in done)  # type: ignore[attr-defined]
        assert {(event.actor, event.key) for event in asked} == {("model", "s1-tools")}
        assert [event.key for event in done] == ["e1-1", "e1-2", "e1-3"]


async def test_tools_are_listed_and_called_by_plain_http() -> None:
    async with tool_place(Far()) as at:
        base = f"{at.place.url}/a/{at.place.token}/tools"
        listed = (await at.http.get(base)).json()
        assert [tool["name"] for tool in listed["tools"]] == ["note", "lookup", "far"]
        answer = await at.http.post(f"{base}/note", json={"text": "42"})
        assert (answer.status_code, answer.json()) == (200, {"text": "Noted.", "is_error": False})
        unknown = await at.http.post(f"{base}/notes", json={})
        assert (unknown.status_code, unknown.json()["is_error"]) == (404, True)
        by_header = await at.http.post(
            f"{at.place.url}/tools/note", json={"text": "43"}, headers={"authorization": f"Bearer {at.place.token}"}
        )
        assert by_header.json()["text"] == "Noted."
        assert records(at) == ["42", "43"]


@pytest.mark.parametrize("name", [["note"], {"note": 1}, None, 5])
async def test_a_name_that_is_none_is_told_so(name: Any) -> None:
    async with tool_place(Far()) as at:
        assert (await at.mcp("tools/call", name=name, arguments={}))["error"]["code"] == -32602


@pytest.mark.parametrize("message_id", ["null", "NaN", "1e999", "[1]", "{}", "true"])
async def test_a_message_whose_name_cannot_be_said_back_is_refused_before_anything_is_done(message_id: str) -> None:
    async with tool_place(Far()) as at:
        call = '"method": "tools/call", "params": {"name": "note", "arguments": {"text": "a"}}'
        body = f'{{"jsonrpc": "2.0", "id": {message_id}, {call}}}'
        where = f"{at.place.url}/a/{at.place.token}/mcp/task_tools"
        answer = await at.http.post(where, content=body, headers={"mcp-session-id": "m"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
        assert not at.place.events(TaskToolCallRequested)


@pytest.mark.parametrize("message_id", ["0", "-1.5", '""', "1" + "0" * 400])
async def test_a_message_is_answered_by_its_name(message_id: str) -> None:
    """Whatever number that is, also one that is too large to be counted with."""
    async with tool_place(Far()) as at:
        body = f'{{"jsonrpc": "2.0", "id": {message_id}, "method": "ping"}}'
        answer = await at.http.post(f"{at.place.url}/a/{at.place.token}/mcp/task_tools", content=body)
        assert (answer.status_code, answer.json()) == (
            200,
            {"jsonrpc": "2.0", "id": json.loads(message_id), "result": {}},
        )


async def test_another_call_under_an_old_name_is_another_call() -> None:
    """Clients that count badly are not told that something was done which was not."""
    async with tool_place(Far()) as at:
        for _ in range(2):
            for text, message_id in (("one", 7), ("two", 7), ("three", "7"), ("two", "7")):
                assert await at.call("note", {"text": text}, id=message_id) == ("Noted.", False)
        assert records(at) == ["one", "two", "three", "two"]


async def test_long_names_of_calls_are_told_apart() -> None:
    async with tool_place(Far()) as at:
        for message_id in (1, 2, 1):
            await at.call("note", {"text": "a"}, id=message_id, session="s" * 300)
        base = f"{at.place.url}/a/{at.place.token}/tools"
        for mark in ("a", "b", "a"):
            await at.http.post(f"{base}/note", json={"text": "b"}, headers={"x-gym-bus-call": "m" * 300 + mark})
        assert records(at) == ["a", "a", "b", "b"]


async def test_who_may_not_is_told_so_and_not_sent_to_log_in() -> None:
    """No metadata of OAuth anywhere: a client that would follow it is given nothing to follow."""
    async with tool_place(Far()) as at:
        refused = await at.http.post(f"{at.place.url}/a/nonsense/mcp/task_tools", json={"id": 1, "method": "ping"})
        assert refused.status_code == HTTPStatus.UNAUTHORIZED
        assert "www-authenticate" not in refused.headers
        for path in ("oauth-protected-resource", "oauth-authorization-server", "openid-configuration"):
            for prefix in ("", f"/a/{at.place.token}", f"/a/{at.place.token}/mcp/task_tools"):
                known = await at.http.get(f"{at.place.url}{prefix}/.well-known/{path}")
                assert known.status_code == HTTPStatus.NOT_FOUND
        other = await at.http.post(f"{at.place.url}/a/{at.place.token}/mcp/plain", json={"id": 1, "method": "ping"})
        assert other.status_code == HTTPStatus.NOT_FOUND, "a grant by plain HTTP is no MCP server"
        assert (await at.http.get(f"{at.place.url}/a/{at.place.token}/mcp/task_tools")).status_code == 405


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ({"jsonrpc": "2.0", "method": "notifications/initialized"}, 202),
        ({"jsonrpc": "2.0", "id": 7, "result": {}, "method": 3}, 202),
        ({"jsonrpc": "2.0"}, 400),
        ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], 400),
    ],
)
async def test_what_is_no_question_gets_no_answer(message: Any, status: int) -> None:
    async with tool_place(Far()) as at:
        answer = await at.http.post(f"{at.place.url}/a/{at.place.token}/mcp/task_tools", json=message)
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("method", "parameters", "code"),
    [
        ("server/discover", {}, -32601),
        ("tools/call", {"name": "notes"}, -32602),
        ("tools/call", {"name": "note", "arguments": "text"}, -32602),
    ],
)
async def test_what_cannot_be_done_is_an_error(method: str, parameters: dict[str, Any], code: int) -> None:
    async with tool_place(Far()) as at:
        assert (await at.mcp(method, **parameters))["error"]["code"] == code
        assert not at.place.events(TaskToolCallRequested)


async def test_a_call_that_is_sent_twice_is_made_once() -> None:
    """By its id in its MCP session, or by the header that `gym-tool` sends; another session's first call is another call."""
    async with tool_place(Far()) as at:
        for _ in range(2):
            assert await at.call("note", {"text": "42"}) == ("Noted.", False)
            base = f"{at.place.url}/a/{at.place.token}/tools/note"
            await at.http.post(base, json={"text": "43"}, headers={"x-gym-bus-call": "c"})
        assert records(at) == ["42", "43"]
        await at.call("note", {"text": "42"}, session="n")
        await at.call("note", {"text": "42"}, session="n", id=2)
        assert records(at) == ["42", "43", "42", "42"]


async def test_a_program_that_is_run_again_gets_the_answers_it_got() -> None:
    """Call by call, in order; what it had not called before is called."""
    async with tool_place(Far()) as at:
        await at.call("note", {"text": "a"}, id=1)
        await at.call("note", {"text": "a"}, id=2)
        await at.call("lookup", {"key": "a"}, id=3)
        at.place.grant = replace(at.place.grant, launch=2)
        for number in range(1, 4):
            assert await at.call("note", {"text": "a"}, session="n", id=number) == ("Noted.", False)
        assert await at.call("lookup", {"key": "a"}, session="n", id=4) == ("one", False)
        replayed = at.place.events(TaskToolCallReplayed)
        assert [event.data.number for event in replayed] == [1, 2, 3]  # type: ignore[attr-defined]
        assert [event.data.launch for event in at.place.events(TaskToolCallRequested)] == [1, 1, 1, 2]  # type: ignore[attr-defined]


async def test_a_gateway_that_is_killed_in_the_middle_of_a_call_is_followed_by_one_that_waits_for_it() -> None:
    """The client sends the call again: the effect is there once, and its answer is the first one's."""
    far = Far()
    async with tool_place(far, is_doubled=True) as at:
        first = asyncio.create_task(at.call("far", {"n": 1}))
        await until(lambda: far.called)
        at.place.first_is_silent()
        again = asyncio.create_task(at.call("far", {"n": 1}, url=at.place.second_url))
        await asyncio.sleep(0.05)
        far.may_end.set()
        assert await again == ("far: 1", False)
        assert await first == ("far: 1", False)
        assert far.called == [{"n": 1}]
        assert await at.call("far", {"n": 1}, url=at.place.second_url, id=2) == ("far: 2", False)


async def test_a_verifier_that_is_killed_in_the_middle_of_a_call_leaves_it_lost() -> None:
    """Whoever follows does not make it again, and the model is told that nobody knows."""
    far = Far()
    async with tool_place(far) as at:
        call = asyncio.create_task(at.call("far", {"n": 1}))
        await until(lambda: far.called)
        at.kill_verifier()
        at.start_verifier(far)
        text, is_error = await call
        assert is_error
        assert "not known" in text
        assert far.called == [{"n": 1}]
        assert len(at.place.events(TaskToolCallLost)) == 1


async def test_a_tool_of_ours_is_executed_by_whoever_follows() -> None:
    """What it does is what the log says: nothing has happened before that."""
    async with tool_place() as at:
        call = asyncio.create_task(at.call("note", {"text": "42"}))
        await until(lambda: at.place.events(TaskToolCallRequested))
        (asked,) = at.place.events(TaskToolCallRequested)
        gone = log_as("verifier", at.place.server, at.place.codec, "gone.x")
        assert await gone.claim(at.place.grant.conversation.sibling("verifier", "e1-1"), 1, asked.event_id)
        at.start_verifier(Far())
        at.hosts[0][2].gone("gone.x")
        assert await call == ("Noted.", False)
        assert records(at) == ["42"]


async def test_a_call_that_takes_too_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever executes it; and by the gateway, if nobody does."""
    monkeypatch.setattr(tool_calls, "SLACK_S", 0.3)
    far = Far()
    async with tool_place(far, timeout_s=1) as at:
        text, is_error = await at.call("far", {})
        assert (text, is_error) == ("What came of the call is not known: no answer within 1 s", True)
        at.kill_verifier()
        text, is_error = await at.call("far", {}, id=2)
        assert (text, is_error) == (LATE.format(timeout_s=1.0), True)
        at.start_verifier(far)
        await until(lambda: at.place.events(TaskToolCallFailed))
        assert len(far.called) == 1, "what nobody waits for any more is not begun"


async def test_a_program_is_settled_when_its_calls_have_an_answer() -> None:
    """A program that ended in the middle of a call: what the call does is in the log before anything is graded."""
    far = Far()
    async with tool_place(far) as at:
        call = asyncio.create_task(at.call("far", {}))
        await until(lambda: far.called)
        log, session = log_as("harness", at.place.server, at.place.codec), at.place.grant.conversation
        session = session.sibling("harness", "s1")
        over = asyncio.create_task(settling._tool_calls_over(log, SystemClock(), session, 1))
        await asyncio.wait({over}, timeout=3 * settling.LOOK_EVERY_S)
        assert not over.done()
        far.may_end.set()
        await asyncio.wait_for(over, 5)
        assert len(at.place.events(TaskToolCallCompleted)) == 1
        await call


async def test_a_server_that_was_not_reached_has_done_nothing() -> None:
    async def refuses(*_: Any) -> Any:
        raise Permanent("no route to it")

    async with tool_place(refuses) as at:
        assert await at.call("far", {}) == ("The tool was not executed: no route to it", True)
        assert len(at.place.events(TaskToolCallFailed)) == 1


async def test_what_is_too_long_is_not_asked() -> None:
    async with tool_place(Far()) as at:
        text, is_error = await at.call("note", {"text": "x" * tool_calls.ARGUMENTS_MAX_BYTES})
        assert is_error
        assert "nothing was done" in text
        assert not at.place.events(TaskToolCallRequested)


@pytest.mark.parametrize(
    "arguments",
    [
        b'{"text": NaN}',
        b'{"text": 1e999}',
        b'{"text": ' + b"[" * 210 + b"]" * 210 + b"}",
        b'{"text": ' + b"[" * 400 + b"]" * 400 + b"}",
        b'{"text": "\\ud800"}',
    ],
)
async def test_odd_arguments_are_recorded_or_refused(arguments: bytes) -> None:
    """No call leaves the log in a state that nobody can read."""
    async with tool_place(Far()) as at:
        answer = await at.http.post(f"{at.place.url}/a/{at.place.token}/tools/note", content=arguments)
        assert answer.status_code == 200
        assert len(at.place.events(TaskToolCallRequested)) == len(at.place.events(TaskToolCallCompleted))
        assert await at.call("note", {"text": "42"}, id=2) == ("Noted.", False)


async def test_a_record_that_is_too_deep_to_be_stored_leaves_the_call_lost() -> None:
    """The tool was executed, and what it left can be neither told nor read again: the agent is told so, and its next call is made."""

    async def leaves_too_much(*_: Any) -> Ran:
        return Ran("done", record=nested(180))

    async with tool_place(leaves_too_much) as at:
        _, is_error = await asyncio.wait_for(at.call("far", {}), 10)
        assert is_error
        [lost] = at.place.events(TaskToolCallLost)
        assert isinstance(lost.data, TaskToolCallLost)
        assert "levels" in lost.data.reason
        assert await at.call("note", {"text": "42"}, id=2) == ("Noted.", False)


async def test_the_token_of_another_activation_has_calls_of_its_own() -> None:
    """A later activation is no run again of an earlier one."""
    async with tool_place(Far()) as at:
        await at.call("note", {"text": "a"})
        later = mint(KEY, replace(at.place.grant, activation=2))
        await at.http.post(f"{at.place.url}/a/{later}/tools/note", json={"text": "a"})
        assert records(at) == ["a", "a"]
