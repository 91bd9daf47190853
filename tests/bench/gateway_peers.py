"""What the gateway is measured against, each a process: a model's server, and proxies that only pass on.

python -m tests.bench.gateway_peers upstream PORT
python -m tests.bench.gateway_peers proxy-httpx PORT UPSTREAM_URL
python -m tests.bench.gateway_peers proxy-aiohttp PORT UPSTREAM_URL

A call tells the server how slow to be: `latency=SECONDS` before the first word, `trickle=SECONDS` before each of
the next (of a second or more: before the first dozen).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator

import aiohttp
import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from providers.dialects.chat import Chat
from providers.dialects.unfolding import unfold
from schemas.conversation import Reply, Text, TokenUsage

WORDS = 40
PATH = "/v1/chat/completions"
CONNECTIONS = 2048
SLOW_PIECES = 12
HEADERS = {"content-type": "application/json"}


SLOWNESS = re.compile(rb"latency=([0-9.]+) trickle=([0-9.]+)")


def upstream() -> Starlette:
    """Return a server that answers every call with the same 40 words."""
    chat = Chat()
    text = tuple(Text(text=f"word {n} ") for n in range(WORDS))
    usage = TokenUsage(input_tokens=100, output_tokens=WORDS)
    reply = Reply(dialect="chat", id="r", model="m", parts=text, stop_reason="stop", usage=usage)
    asked = chat.read_request({"model": "m", "messages": [], "stream": True})
    writer = chat.stream_writer(asked)
    pieces = [writer.write(delta) for delta in unfold(reply)]
    whole = Response(content=b"", media_type="application/json")
    whole.body = httpx.Response(200, json=chat.write_reply(reply, asked)).content

    async def stream(trickle_s: float) -> AsyncIterator[bytes]:
        for n, piece in enumerate(pieces):
            yield piece
            if trickle_s and (trickle_s < 1 or n < SLOW_PIECES):
                await asyncio.sleep(trickle_s)

    async def answer(request: Request) -> Response:
        body = await request.body()
        found = SLOWNESS.search(body)
        latency_s, trickle_s = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
        await asyncio.sleep(latency_s)
        if b'"stream": true' in body or b'"stream":true' in body:
            return StreamingResponse(stream(trickle_s), media_type="text/event-stream")
        return Response(whole.body, media_type="application/json")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def proxy_httpx(url: str) -> Starlette:
    """Return a server that passes calls on to `url`, and answers back, as they are."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    client = httpx.AsyncClient(limits=limits, timeout=60)

    async def passed(request: Request) -> Response:
        content = await request.body()
        sent = client.build_request("POST", f"{url}{PATH}", content=content, headers=HEADERS)
        response = await client.send(sent, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in response.aiter_raw():
                yield piece
            await response.aclose()

        return StreamingResponse(pieces(), response.status_code, media_type=response.headers.get("content-type"))

    return Starlette(routes=[Route(PATH, passed, methods=["POST"])])


def proxy_aiohttp(url: str) -> Starlette:
    """Return the same with another client."""
    client = None

    async def passed(request: Request) -> Response:
        nonlocal client
        client = client or aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS))
        response = await client.post(f"{url}{PATH}", data=await request.body(), headers=HEADERS)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in response.content.iter_any():
                yield piece
            response.release()

        return StreamingResponse(pieces(), response.status, media_type=response.headers.get("content-type"))

    return Starlette(routes=[Route(PATH, passed, methods=["POST"])])


if __name__ == "__main__":
    role, port, rest = sys.argv[1:4]
    app = {"upstream": lambda _: upstream(), "proxy-httpx": proxy_httpx, "proxy-aiohttp": proxy_aiohttp}[role](rest)
    uvicorn.run(app, port=int(port), lifespan="off", log_config=None, access_log=False, http="httptools", backlog=2048)
