"""How an agent that runs somewhere else is asked: how often, how long it is left alone, and that there is an end to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.harness.remote_calls import Conversation, NoWay, RemoteHandlers
from actors.harness.remote_http import ANSWER_MAX_BYTES, HttpAsked, HttpSaid, Unfit, Unheard, ask_agent
from adapters.harnesses.remote import Accepted
from gym_bus.gateway_file import SOCKET_FILE, GatewayAddress, gateway_directory, write_address
from schemas.events import RemoteAnswered
from schemas.values import Failure
from tests.support.machine_case import Case
from tests.support.upstream import served, served_on
from tests.support.virtual_time import run_virtual
from tests.unit.test_remote_machine import AGENT, TAKEN, asked

TOKEN = "gbt.some.token"
CONVERSATION = Conversation(
    "ask", HttpAsked("POST", AGENT.url, {}, b"{}"), {"accept": "application/json"}, (TOKEN.encode(),), 10
)
DONE: Any = (200, {"answer": "4"})
NAMED: Any = (202, {"status_url": "/do/1"})
WORKING: Any = (202, {})
GONE: Any = (404, {})
BUSY: Any = (503, {})


class Script:
    """An agent that says what it is to say, the last for ever; `asked` are the requests, with when they came."""

    def __init__(self, *says: Any) -> None:
        self.says = list(says)
        self.asked: list[tuple[str, str]] = []
        self.at: list[float] = []

    async def __call__(self, asked: HttpAsked, within_s: float) -> HttpSaid:
        """Say the next."""
        assert within_s == 10
        self.asked.append((asked.method, asked.url))
        self.at.append(asyncio.get_running_loop().time())
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        status, body, *headers = said
        return HttpSaid(status, dict(headers), json.dumps(body).encode())

    @property
    def waits(self) -> Iterator[float]:
        """Return the times between requests."""
        return (round(after - before, 3) for before, after in zip(self.at, self.at[1:], strict=False))


def followed(script: Script, case: Case[Any] | None = None, **agent: Any) -> Any:
    """Return what comes of asking an agent that follows a script."""
    case = case or asked(agent=AGENT.replaced(max_tries=4, **agent))
    handlers = RemoteHandlers(Path("/nonexistent"), script)
    return run_virtual(handlers._followed(case.state, CONVERSATION))


def at_its_status_url(**agent: Any) -> Case[Any]:
    """Return a session whose agent has said where it tells how it is getting on."""
    return asked(agent=AGENT.replaced(max_tries=4, **agent)).given(TAKEN)


def test_an_answer_ends_it() -> None:
    assert followed(Script(DONE)) == RemoteAnswered(asked_id="ask", answer="4")
    assert followed(Script(NAMED)) == Accepted("https://agent.example/do/1")


@pytest.mark.parametrize(
    "says", [BUSY, Unheard("transport_unreachable", "refused"), Unheard("transport_timeout", "10 s")]
)
def test_what_fails_is_asked_again_under_the_same_key_and_only_so_often(says: Any) -> None:
    """The waits grow; what comes of it may be tried again by another attempt."""
    script = Script(says)
    found = followed(script)
    assert isinstance(found, Failure)
    assert (found.terminal, found.message.endswith("(4 tries)")) == (False, True)
    assert script.asked == [("POST", AGENT.url)] * 4
    first, *_, last = script.waits
    assert 0 < first < last <= 60
    assert followed(Script(says, says, says, DONE)).answer == "4"


def test_an_agent_that_works_is_left_alone_between_two_questions() -> None:
    """As long as it wishes, within bounds; a question without an answer does not count against it for ever."""
    case = at_its_status_url(poll_s=2.0)
    slow = (202, {}, ("retry-after", "7")), (202, {}, ("retry-after", "500")), (202, {}, ("retry-after", "0"))
    script = Script(*slow, BUSY, BUSY, BUSY, WORKING, BUSY, BUSY, BUSY, DONE)
    assert followed(script, case).answer == "4"
    assert set(script.asked) == {("GET", TAKEN.status_url)}
    assert [*script.waits][:3] == [7, 60, 2]


def test_what_it_has_forgotten_is_asked_anew_and_only_so_often() -> None:
    """Also where it takes it each time, and names the same address."""
    script = Script(GONE, DONE)
    assert followed(script, at_its_status_url()).answer == "4"
    assert [method for method, _ in script.asked] == ["GET", "POST"]
    script = Script(*(GONE, NAMED) * 10)
    found = followed(script, at_its_status_url())
    assert isinstance(found, Failure)
    assert "forgotten" in found.message
    assert [method for method, _ in script.asked] == ["GET", "POST"] * 3 + ["GET"]


def test_status_urls_are_not_named_for_ever() -> None:
    case = at_its_status_url()
    for number in range(2, 5):
        case = case.given(TAKEN.replaced(status_url=f"https://agent.example/do/{number}", number=number))
    found = followed(Script((202, {"status_url": "/do/5"})), case)
    assert isinstance(found, Failure)
    assert "4 status URLs" in found.message


def test_one_that_is_taken_must_say_where_to_look() -> None:
    found = followed(Script(WORKING))
    assert isinstance(found, Failure)
    assert found.terminal


def test_a_token_that_it_repeats_is_told_to_nobody() -> None:
    found = followed(Script((422, {"message": f"I was given {TOKEN}"})))
    assert "I was given [redacted]" in found.message
    assert followed(Script((200, {"answer": f"my token: {TOKEN}"}))).answer == "my token: [redacted]"


async def raw(scope: Any, receive: Any, send: Any) -> None:
    """Answer with ten times as much as may be, or with nothing for a long time."""
    del receive
    if scope["path"] == "/silent":
        await asyncio.sleep(5)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/long":
        for _ in range(10):
            await send({"type": "http.response.body", "body": b"x" * ANSWER_MAX_BYTES, "more_body": True})
    await send({"type": "http.response.body", "body": b"short"})


async def test_an_answer_is_bounded_in_size_and_in_time() -> None:
    async with served(raw) as url:
        assert (await ask_agent(HttpAsked("GET", url, {}), 5)).body == b"short"
        with pytest.raises(Unfit, match="longer than"):
            await ask_agent(HttpAsked("POST", f"{url}/long", {}, b"{}"), 5)
        with pytest.raises(Unheard) as silent:
            await ask_agent(HttpAsked("GET", f"{url}/silent", {}), 0.2)
    with pytest.raises(Unheard) as refused:
        await ask_agent(HttpAsked("DELETE", url, {}), 5)
    with pytest.raises(Unfit):
        await ask_agent(HttpAsked("GET", url, {"authorization": "Bearer \u2603"}), 5)
    assert (silent.value.kind, refused.value.kind) == ("transport_timeout", "transport_unreachable")


async def test_an_agent_elsewhere_is_given_the_address_that_others_reach(tmp_path: Path) -> None:
    """One beside us is given that of this machine; where others reach none, that is said, with what to do."""
    directory = gateway_directory(tmp_path)
    directory.mkdir(parents=True)
    handlers = RemoteHandlers(tmp_path)
    async with served_on(raw, directory / SOCKET_FILE) as path:
        write_address(directory, GatewayAddress("http://127.0.0.1:7", str(path)))
        assert await handlers._gateway("http://localhost:9000/do") == "http://127.0.0.1:7"
        with pytest.raises(NoWay, match="GYM_BUS_DEFAULT_HOST"):
            await handlers._gateway("http://agent.example/do")
        write_address(directory, GatewayAddress("http://127.0.0.1:7", str(path), "http://10.1.1.1:7"))
        assert await handlers._gateway("http://agent.example/do") == "http://10.1.1.1:7"
