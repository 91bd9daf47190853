"""What a client hears when its gateway is stopped, loses a lease race, cannot reach the log, or is sent a body without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import StreamingResponse

from actors.gateway import exchange
from gym_bus.event_log import EventLog
from schemas.conversation import Text
from schemas.events import ModelCallCompleted, ModelCallFailed, ModelCallLate, ModelCallLost, ModelCallRequested
from tests.support.gateway_calls import NAMES, post, words
from tests.support.gateway_place import gateway_place


async def _never() -> AsyncIterator[bytes]:
    await asyncio.sleep(30)
    yield b""


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stopped_gateway_tells_its_clients(client: Any, streamed: bool) -> None:
    """An error in their dialect, in the middle of a stream too: half an answer never looks like a whole one."""
    async with gateway_place() as place:
        place.upstream.pace_s = 0.1
        many = tuple(Text(text=f"part {n} ") for n in range(50))
        whole = words().model_copy(update={"parts": many})
        place.upstream.answers = [whole] if streamed else [lambda _: StreamingResponse(_never())]
        asking = asyncio.create_task(post(place, client, stream=streamed))
        await asyncio.sleep(0.7)
        await place.gateway.stop(3)
        answer = await asking
        assert "the gateway was stopped" in answer.text
        if not streamed:
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
        (failed,) = [e.data for e in place.events(ModelCallFailed)]
        assert isinstance(failed, ModelCallFailed)
        assert failed.failure.kind == "cancelled"


async def test_a_gateway_takes_nothing_from_itself() -> None:
    """Of calls that wait together while another gateway's lease runs out, none robs the others."""
    async with gateway_place(is_doubled=True) as place:
        place.upstream.answers = [words()]
        assert (await post(place)).status_code == 200
        place.upstream.pace_s = 0.1
        presence = place.presences[1]
        is_alive = presence.is_alive

        def ends_after_one_look(worker: str) -> bool:
            found = is_alive(worker)
            presence.gone("g0.x")
            return found

        presence.is_alive = ends_after_one_look  # type: ignore[method-assign]
        asking = [asyncio.create_task(post(place, url=place.second_url, seed=n, stream=True)) for n in (1, 2)]
        await asyncio.sleep(0.15)
        asking.append(asyncio.create_task(post(place, url=place.second_url, seed=3, stream=True)))
        answers = await asyncio.gather(*asking)
        assert sorted(a.status_code for a in answers) == [200, 200, 503]
        assert len(place.events(ModelCallCompleted)) == 3
        assert not place.events(ModelCallLost, ModelCallLate)


@pytest.mark.alone
async def test_a_log_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of the backend then; the client hears so, and what is under way beside it is recorded when the log is back."""
    monkeypatch.setattr(exchange, "ASKED_WITHIN_S", 0.3)
    append, is_away = EventLog.append, False

    async def slow(self: EventLog, *arguments: Any) -> Any:
        while is_away and isinstance(arguments[1].data, ModelCallRequested):
            await asyncio.sleep(0.02)
        return await append(self, *arguments)

    monkeypatch.setattr(EventLog, "append", slow)
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        place.upstream.pace_s = 0.2
        beside = asyncio.create_task(post(place, stream=True))
        await asyncio.sleep(0.2)
        is_away = True
        refused = await post(place, seed=2)
        assert refused.status_code == 503
        assert "nothing was asked" not in (await beside).text
        assert len(place.upstream.bodies) == 1
        is_away = False
        assert (await post(place, seed=3)).status_code == 200
        assert len(place.events(ModelCallCompleted)) == 2
        assert not place.events(ModelCallLate)


async def test_a_body_has_so_many_messages_at_most() -> None:
    """One client's body does not hold up everybody else's calls."""
    async with gateway_place() as place:
        place.upstream.answers = [words()]
        many = [{"role": "user", "content": "x"}] * 20_001
        refused = await post(place, messages=many)
        assert refused.status_code == 413
        assert "20,001 messages" in refused.json()["error"]["message"]
        assert (await post(place)).status_code == 200
