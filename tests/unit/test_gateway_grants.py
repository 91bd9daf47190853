"""Tokens: what they are for, how long they count, and how often one may ask."""

from __future__ import annotations

from dataclasses import replace
from functools import partialmethod
from typing import Any

import httpx
import pytest

from actors.gateway import conversations
from actors.gateway.grants import Grant, Refused, gateway_key, mint, read
from gym_bus.event_log import Draft
from gym_bus.subjects import aggregate
from schemas.conversation import DialectName
from schemas.events import (
    ActivationCompleted,
    Claimed,
    ModelCallRequested,
    SessionClosed,
)
from schemas.tasks import Evidence
from tests.support.gateway_calls import BODIES, NAMES, PATHS, message_of, post, words
from tests.support.gateway_place import KEY, gateway_place, log_as, open_session


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("token", ["", "gbt.bad.bad", "sk-something", "gbt..", "gbt.\xe9.x"])
async def test_a_wrong_token_is_a_401_in_the_clients_dialect(client: DialectName, token: str) -> None:
    async with gateway_place() as place:
        headers = {"x-api-key": token.encode("latin-1")} if token else {}
        async with httpx.AsyncClient() as http:
            answer = await http.post(f"{place.url}{PATHS[client]}", json=BODIES[client], headers=headers)
        assert answer.status_code == 401
        assert "token" in message_of(client, answer)
        assert place.events(ModelCallRequested) == []


async def test_a_token_of_another_key_or_session_is_foreign() -> None:
    """Signed by somebody else, or for a session that never was: 401, and nothing is asked."""
    async with gateway_place() as place:
        stranger = Grant(aggregate("r1", "7-7", "model", "s1"), 1)
        for token in (mint(b"x" * 32, place.grant), mint(KEY, stranger)):
            assert (await post(place, token=token)).status_code == 401
        assert place.upstream.bodies == []


async def test_a_token_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is good while the session is open, whatever process owns it, and refused afterwards."""
    monkeypatch.setattr("actors.gateway.sessions.TRUSTED_FOR_S", 0.0)
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        assert (await post(place)).status_code == 200
        harness = log_as("harness", place.server, place.codec)
        where = place.grant.conversation.sibling("harness", "s1")
        writer = await harness.claim(where, 1, None)
        assert writer is not None
        closed = SessionClosed(request_id="x", evidence=Evidence(answer="4", stop_reason="stop", turns=1))
        await harness.append(writer, Draft(closed, None))
        refused = await post(place)
        assert refused.status_code == 401
        assert "over" in message_of("chat", refused)


async def test_a_token_ends_with_its_activation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next activation's token is another; both are recorded in the one conversation of their session."""
    monkeypatch.setattr("actors.gateway.sessions.TRUSTED_FOR_S", 0.0)
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        first, second = place.token, mint(KEY, replace(place.grant, activation=2))
        assert [(await post(place, token=t)).status_code for t in (first, second)] == [200, 200]
        harness = log_as("harness", place.server, place.codec)
        writer = await harness.claim(place.grant.conversation.sibling("harness", "s1"), 1, None)
        assert writer is not None
        evidence = Evidence(answer="4", stop_reason="stop", turns=1)
        await harness.append(writer, Draft(ActivationCompleted(activation=1, evidence=evidence), None))
        assert [(await post(place, token=t)).status_code for t in (first, second)] == [401, 200]
        await harness.append(writer, Draft(ActivationCompleted(activation=2, evidence=evidence), None))
        refused = await post(place, token=second)
        assert refused.status_code == 401
        assert "activation" in message_of("chat", refused)
        assert len(place.events(Claimed)) == 3, (
            "the collector's, the conversation's, the harness's: nobody fenced anybody"
        )


async def test_a_session_that_asks_and_asks_is_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that repeats a call for ever gets 429 with a wait; it is not recorded, and others notice nothing."""
    monkeypatch.setattr(conversations, "SESSION_PER_S", 0.001)
    monkeypatch.setattr(conversations.Known, "__init__", partialmethod(conversations.Known.__init__, allowance=3.0))
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        answers = [await post(place) for _ in range(5)]
        assert [a.status_code for a in answers] == [200, 200, 200, 429, 429]
        assert answers[-1].headers["retry-after"] == "1"
        assert len(place.events(ModelCallRequested)) == 3
        place.grant = await open_session(place.server, place.codec, rollout_id="1-0")
        assert (await post(place)).status_code == 200


def test_tokens_say_what_they_are_for(tmp_path: Any) -> None:
    """What was minted is read back; one changed character is noticed; the key stays the same and is for the owner only."""
    key = gateway_key(tmp_path / "keys")
    assert gateway_key(tmp_path / "keys") == key
    assert (tmp_path / "keys" / "gateway.key").stat().st_mode & 0o777 == 0o600
    grant = Grant(aggregate("run-1", "3-0", "model", "s2"), 2, 3)
    token = mint(key, grant)
    assert read(key, token) == grant
    for n in range(len(token)):
        changed = token[:n] + ("A" if token[n] != "A" else "B") + token[n + 1 :]
        with pytest.raises(Refused):
            read(key, changed)
