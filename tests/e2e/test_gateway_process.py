"""The gateway as a process on a real bus: both of its doors, its death in mid-call, and the next one that takes over."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from schemas.config import ScriptedModel
from schemas.events import ModelCallCompleted, ModelCallLost, ModelCallRequested
from tests.support.gateway_process import a_place

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

ASKED = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "What is 2 + 3?"}]}


async def until_taken(ask: Callable[[], Awaitable[str]]) -> str:
    """Ask again, as agents do, until a lease has run out."""
    async with asyncio.timeout(20):
        while "has this session and is alive" in (text := await ask()):
            await asyncio.sleep(0.5)
    return text


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_both_doors_and_a_polite_end(tmp_path: Path) -> None:
    """TCP with the token in the path, a unix socket with it in a header; SIGTERM ends the process with code 0."""
    async with a_place(tmp_path) as place:
        token = await place.open_session("0-0", ScriptedModel(error_rate=0))
        with place.gateway() as process:
            where = await place.where()
            async with httpx.AsyncClient() as http:
                answer = await http.post(f"{where['url']}/a/{token}/v1/messages", json=ASKED)
                assert answer.status_code == 200, answer.text
                assert "5" in answer.json()["content"][0]["text"]
                listed = await http.get(f"{where['url']}/v1/models", headers=bearer(token))
                assert listed.json()["data"][0]["id"] == "scripted"
                counted = await http.post(f"{where['url']}/a/{token}/v1/messages/count_tokens", json=ASKED)
                assert counted.json()["input_tokens"] > 0
                assert (await http.post(f"{where['url']}/mcp/x", json={})).status_code == 401
            transport = httpx.AsyncHTTPTransport(uds=where["socket"])
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
                more = (
                    {"role": "assistant", "content": answer.json()["content"]},
                    {"role": "user", "content": "And 4 + 4?"},
                )
                asked = {**ASKED, "messages": [*ASKED["messages"], *more]}
                assert (await http.post("/v1/messages", json=asked, headers=bearer(token))).status_code == 200
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == 0
        first, second = await place.events(ModelCallRequested)
        assert isinstance(second.data, ModelCallRequested)
        assert second.data.parent_id == first.event_id
        assert len(second.data.new_turns) == 1


async def test_a_gateway_killed_in_mid_call(tmp_path: Path) -> None:
    """The client gets an error; its retry at the next gateway completes; the log has one call with two tries, the first one lost."""
    async with a_place(tmp_path) as place:
        token = await place.open_session("0-0", ScriptedModel(error_rate=0, latency_s=1.5))
        body: dict[str, Any] = {**ASKED, "stream": True}
        with place.gateway() as process:
            where = await place.where()

            async def ask(url: str) -> str:
                async with httpx.AsyncClient(timeout=20) as http:
                    return (await http.post(f"{url}/v1/messages", json=body, headers=bearer(token))).text

            asking = asyncio.create_task(ask(where["url"]))
            async with asyncio.timeout(10):
                while not await place.events(ModelCallRequested):
                    await asyncio.sleep(0.05)
            process.kill()
            try:
                text = await asking
            except httpx.HTTPError:
                text = ""
            assert "message_stop" not in text
        with place.gateway("g1"):
            url = (await place.where("g1"))["url"]
            assert "the gateway g0 has this session" in await ask(url), "it may still live: nobody has heard of it yet"
            text = await until_taken(lambda: ask(url))
            assert "message_stop" in text
        tries = [e.data for e in await place.events(ModelCallRequested)]
        assert [(t.turn, t.tries) for t in tries if isinstance(t, ModelCallRequested)] == [(1, 1), (1, 2)]
        assert len(await place.events(ModelCallLost)) == 1
        assert len(await place.events(ModelCallCompleted)) == 1


async def test_two_gateways_of_which_one_dies(tmp_path: Path) -> None:
    """The other leaves the session alone while the first one lives, takes it over within the lease, gives it up when it ends."""
    async with a_place(tmp_path) as place:
        token = await place.open_session("0-0", ScriptedModel(error_rate=0))
        with place.gateway("g0") as first, place.gateway("g1") as second:
            urls = {name: (await place.where(name))["url"] for name in ("g0", "g1")}

            async def ask(name: str) -> str:
                async with httpx.AsyncClient(timeout=20) as http:
                    return (await http.post(f"{urls[name]}/v1/messages", json=ASKED, headers=bearer(token))).text

            assert "end_turn" in await ask("g0")
            for _ in range(3):
                assert "the gateway g0 has this session and is alive" in await ask("g1")
                await asyncio.sleep(2)
            assert "end_turn" in await ask("g0")
            first.kill()
            assert "end_turn" in await until_taken(lambda: ask("g1"))
            assert await asyncio.to_thread(first.wait, 20) != 0
            with place.gateway("g0"):
                urls["g0"] = (await place.where("g0"))["url"]
                assert "the gateway g1 has this session and is alive" in await ask("g0")
                second.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(second.wait, 20) == 0
                assert "end_turn" in await ask("g0")
        assert len(await place.events(ModelCallRequested)) == len(await place.events(ModelCallCompleted)) == 4
