"""A model's server for tests: it answers as it is told, in one dialect, over real HTTP, and keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from providers.dialects import Dialect
from providers.dialects.unfolding import unfold
from schemas.conversation import Reply

Answer = Reply | Response | Callable[[dict[str, Any]], Any]
"""A reply to be said in the dialect, a ready response, or a function of the body that returns one of the two."""


class _Quiet(uvicorn.Server):
    """Without signal handlers, and quick to end: uvicorn's own naps of a tenth of a second would be most of a test's time."""

    def capture_signals(self) -> Any:
        """Leave signals alone."""
        return nullcontext()

    async def main_loop(self) -> None:
        """Serve until told to stop."""
        while not self.should_exit:
            await asyncio.sleep(TICK_S)

    async def shutdown(self, sockets: Any = None) -> None:
        """Take no more connections, and end those that there are: what is under way has a second."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for connection in list(state.connections):
            connection.shutdown()
        for _ in range(int(GRACE_S / TICK_S)):
            await asyncio.sleep(TICK_S)  # also for a connection that was taken just now
            if not state.connections and not state.tasks:
                return
        for task in list(state.tasks):
            task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(TICK_S)


TICK_S = 0.005
GRACE_S = 1.0


@asynccontextmanager
async def served(app: Any, port: int = 0) -> AsyncIterator[str]:
    """Serve an ASGI application on a free port of this machine, or on `port`; give its address."""
    config = uvicorn.Config(
        app, port=port, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=1
    )
    server = _Quiet(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


@asynccontextmanager
async def served_on(app: Any, path: Path) -> AsyncIterator[Path]:
    """Serve an ASGI application on the unix socket `path`, which is made."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        server = _Quiet(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield path
        finally:
            server.should_exit = True
            await task


@dataclass
class Upstream:
    """See the module."""

    dialect: Dialect
    answers: list[Answer] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    pace_s: float = 0.0
    open_streams: int = 0
    cut_streams: int = 0

    @property
    def app(self) -> Starlette:
        """Return the application to serve."""
        return Starlette(routes=[Route(self.dialect.path, self._answer, methods=["POST"])])

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.headers.append(dict(request.headers))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer) and not isinstance(answer, Response):
            answer = answer(body)
        if isinstance(answer, Response):
            return answer
        assert isinstance(answer, Reply)
        asked = self.dialect.read_request(body)
        if not asked.is_streamed:
            return JSONResponse(self.dialect.write_reply(answer, asked))
        return StreamingResponse(self._stream(answer, asked), media_type="text/event-stream")

    async def _stream(self, reply: Reply, asked: Any) -> AsyncIterator[bytes]:
        writer = self.dialect.stream_writer(asked)
        self.open_streams += 1
        is_whole = False
        try:
            for delta in unfold(reply):
                if self.pace_s:
                    await asyncio.sleep(self.pace_s)
                yield writer.write(delta)
            is_whole = True
        finally:
            self.open_streams -= 1
            self.cut_streams += not is_whole


def events_of(text: str) -> list[Any]:
    """Return the data of a stream's events as JSON."""
    return [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: {")]
