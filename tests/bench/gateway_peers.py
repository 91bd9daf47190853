"""What the gateway is measured against, each a process: a model's server with a fixed latency, and a proxy that only passes on.

python -m tests.bench.gateway_peers upstream PORT LATENCY_S
python -m tests.bench.gateway_peers proxy PORT UPSTREAM_URL
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

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


def upstream(latency_s: float) -> Starlette:
    """Return a server that answers every call with the same 40 words, after `latency_s`; streamed, the first of them then."""
    chat = Chat()
    text = tuple(Text(text=f"word {n} ") for n in range(WORDS))
    usage = TokenUsage(input_tokens=100, output_tokens=WORDS)
    reply = Reply(dialect="chat", id="r", model="m", parts=text, stop_reason="stop", usage=usage)
    asked = chat.read_request({"model": "m", "messages": [], "stream": True})
    writer = chat.stream_writer(asked)
    pieces = [writer.write(delta) for delta in unfold(reply)]
    whole = Response(content=b"", media_type="application/json")
    whole.body = httpx.Response(200, json=chat.write_reply(reply, asked)).content

    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def answer(request: Request) -> Response:
        body = await request.body()
        await asyncio.sleep(latency_s)
        if b'"stream": true' in body or b'"stream":true' in body:
            return StreamingResponse(stream(), media_type="text/event-stream")
        return Response(whole.body, media_type="application/json")

    return Starlette(routes=[Route(PATH, answer, methods=["POST"])])


def proxy(url: str) -> Starlette:
    """Return a server that passes calls on to `url`, and answers back, as they are."""
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    client = httpx.AsyncClient(limits=limits, timeout=60)

    async def passed(request: Request) -> Response:
        content = await request.body()
        sent = client.build_request(
            "POST", f"{url}{PATH}", content=content, headers={"content-type": "application/json"}
        )
        response = await client.send(sent, stream=True)

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in response.aiter_raw():
                yield piece
            await response.aclose()

        return StreamingResponse(pieces(), response.status_code, media_type=response.headers.get("content-type"))

    return Starlette(routes=[Route(PATH, passed, methods=["POST"])])


if __name__ == "__main__":
    role, port, rest = sys.argv[1:4]
    app = upstream(float(rest)) if role == "upstream" else proxy(rest)
    uvicorn.run(app, port=int(port), lifespan="off", log_config=None, access_log=False, http="httptools", backlog=2048)
