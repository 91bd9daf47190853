"""What an agent that runs somewhere else says by HTTP, and what it means; and the addresses that it may be at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.harnesses.remote import SAID_MAX, Accepted, Again, is_beside_us, read, read_status
from schemas.events import RemoteAnswered
from schemas.harnesses import RemoteAgent
from schemas.values import Failure

URL = "https://agent.example/a/do"


def said(status: int, body: Any, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read("ask", URL, status, headers, content)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"answer": "4"}, "4"),
        ({"answer": None, "messages": [{"role": "assistant", "content": "5"}]}, None),
        ({"messages": [{"role": "assistant", "content": "5"}, {"role": "tool", "content": "6"}]}, "5"),
        ({"messages": [{"role": "assistant", "content": [{"type": "text"}]}]}, None),
        (
            {"messages": [{"role": "assistant", "content": [{"text": "It is "}, {"image": 1}, {"text": "5"}]}]},
            "It is 5",
        ),
        ({"messages": [{"role": "assistant", "content": {"text": "5"}}]}, None),
        ({"answer": "a\0b", "usage": {"whatever": 1}}, "a\ufffdb"),
    ],
)
def test_the_answer_is_what_it_says_or_its_last_words(body: Any, answer: str | None) -> None:
    assert said(200, body) == RemoteAnswered(asked_id="ask", answer=answer)


def test_its_end_and_its_error_are_its_own_word() -> None:
    found = said(200, {"answer": "4", "stop_reason": "max_steps", "cleanup_confirmed": True})
    assert (found.stop_reason, found.cleanup_confirmed) == ("max_steps", True)
    failed = said(200, {"error": {"kind": "tired", "message": "x" * 5000}})
    assert failed.failure.kind == "agent_failed"
    assert len(failed.failure.message) < SAID_MAX + 100


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b'{"answer": "\\ud800"}',
        b"\xff",
        b"[" * 100_000,
        {},
        {"status": "ok"},
        {"answer": 4},
        {"answer": "4", "stop_reason": "budget:model_calls"},
        {"answer": "4", "cleanup_confirmed": "yes"},
    ],
)
def test_what_is_no_answer_is_never_taken_for_one(body: Any) -> None:
    """Neither is a stop reason that only the gateway may give."""
    found = said(200, body)
    assert isinstance(found, Failure)
    assert (found.kind, found.terminal) == ("agent_failed", False)
    assert len(found.message) <= SAID_MAX


@pytest.mark.parametrize(
    ("named", "at"),
    [
        ("/s/1", "https://agent.example/s/1"),
        ("s/1?x=2", "https://agent.example/a/s/1?x=2"),
        ("https://agent.example:443/s", "https://agent.example:443/s"),
        ("http://agent.example/s", None),
        ("https://agent.example:8443/s", None),
        ("//elsewhere.example/s", None),
        ("https://me:secret@agent.example/s", None),
        ("file:///etc/passwd", None),
        ("https://agent.example:none/s", None),
        ("x" * 3000, None),
    ],
)
def test_a_status_url_is_of_the_agents_own_origin(named: str, at: str | None) -> None:
    """Else whoever answers could have us ask anybody."""
    found = said(202, {"status_url": named})
    if at is None:
        assert isinstance(found, Failure)
        assert found.terminal
    else:
        assert found == Accepted(at)


def test_how_long_to_wait_is_the_agents_wish() -> None:
    assert said(202, b"", **{"retry-after": "7"}) == Accepted(None, 7.0)
    assert said(503, b"", **{"retry-after": "9"}).again_in_s == 9


@pytest.mark.parametrize(
    ("status", "kind", "is_terminal"),
    [(400, "unsupported", True), (401, "unsupported", True), (307, "unsupported", True), (409, "agent_failed", False)],
)
def test_a_refusal_is_not_asked_again(status: int, kind: str, is_terminal: bool) -> None:
    """It holds for every rollout of the run, but for a conflict; what the agent says of it is told, and not all of it."""
    found = said(status, b"why: " + b"y" * 9000)
    assert isinstance(found, Failure)
    assert (found.kind, found.terminal) == (kind, is_terminal)
    assert "why: yyy" in found.message
    assert len(found.message) < SAID_MAX + 200


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 599])
def test_what_says_nothing_of_the_task_is_asked_again(status: int) -> None:
    found = said(status, b"")
    assert isinstance(found, Again)
    assert not found.is_forgotten


def test_what_was_forgotten_is_asked_anew() -> None:
    for status in (404, 410):
        found = read_status("ask", f"{URL}/1", status, {}, b"")
        assert isinstance(found, Again)
        assert found.is_forgotten
        assert isinstance(said(status, b""), Failure), "an agent that is not where it was said to be is no such thing"
    assert read_status("ask", f"{URL}/1", 200, {}, b'{"answer": "4"}') == RemoteAnswered(asked_id="ask", answer="4")


@pytest.mark.parametrize(
    "url",
    [
        "agent",
        "ftp://a/b",
        "http://",
        "http://me:pw@a/",
        "http://a/?key=1",
        "http://a/#b",
        "http://a/ b",
        "http://[::1",
    ],
)
def test_an_address_holds_no_secret(url: str) -> None:
    with pytest.raises(ValidationError):
        RemoteAgent(url=url)


def test_who_is_on_this_machine_is_known_by_its_address() -> None:
    here = ["http://127.0.0.1:8/do", "http://localhost/do", "http://[::1]:8/", "http://a.localhost/"]
    assert [is_beside_us(url) for url in (*here, "http://10.0.0.1/", "http://agent.example/")] == [True] * 4 + [
        False
    ] * 2
