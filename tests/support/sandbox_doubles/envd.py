"""What runs in each of E2B's machines: processes and files, over Connect with JSON and over plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.support.sandbox_doubles.machines import USERS, DoubleMachine

END_OF_STREAM = 2
CHUNK = 32_768


def frame(message: dict[str, Any], flags: int = 0) -> bytes:
    """Return one envelope of Connect's streaming protocol."""
    body = json.dumps(message).encode()
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def refused(code: str, message: str, status: int) -> Response:
    """Return an error as Connect's unary calls have them."""
    return JSONResponse({"code": code, "message": message}, status)


def user_of(request: Request) -> str:
    """Return who a call runs as."""
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    return base64.b64decode(credentials).decode().partition(":")[0] if kind == "Basic" else "user"


class Line:
    """From a process to whoever listens to it; what nobody wants any more is dropped, and the process goes on."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
        self._is_gone = False

    async def say(self, item: bytes | None) -> None:
        """Say the next thing as soon as there is room."""
        while self._queue.full() and not self._is_gone:
            await asyncio.sleep(0.005)
        if not self._is_gone:
            self._queue.put_nowait(item)

    async def said(self) -> AsyncIterator[bytes]:
        """Yield what is said, to the end."""
        try:
            while (item := await self._queue.get()) is not None:
                yield item
        finally:
            self._is_gone = True


async def chunks(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    """Yield what a process prints; it ends with it, or when nobody listens."""
    assert process.stdout
    try:
        while data := await process.stdout.read(CHUNK):
            yield data
    finally:
        await ended(process)


async def ended(process: asyncio.subprocess.Process) -> None:
    """See to it that a process has ended, and that nothing is held of it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    try:
        await process.wait()
    finally:
        process._transport.close()  # type: ignore[attr-defined]


class Envd:
    """The daemon of one machine. A process goes on when nobody listens to it any more."""

    def __init__(self, machine: DoubleMachine) -> None:
        self._machine = machine
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, request: Request) -> Response:
        """Answer a call that was routed to this machine."""
        match request.method, request.url.path:
            case "GET", "/health":
                return Response(status_code=204)
            case "GET", "/files":
                return await self._read(request)
            case "POST", "/files":
                return await self._write(request)
            case "POST", "/process.Process/Start":
                return await self._start(request)
            case "POST", "/process.Process/SendSignal":
                return await self._signal(request)
        return refused("unimplemented", request.url.path, 501)

    async def _start(self, request: Request) -> Response:
        body = await request.body()
        message = json.loads(body[5:])["process"]
        user = user_of(request)
        if user not in USERS:
            error = {"code": "invalid_argument", "message": f"invalid user: {user}"}
            return StreamingResponse(
                _one(frame({"error": error}, END_OF_STREAM)), media_type="application/connect+json"
            )
        process = await self._machine.start(
            [message["cmd"], *message.get("args", [])], user=user, env=message.get("envs"), cwd=message.get("cwd")
        )
        self._processes[process.pid] = process
        line = Line()
        timeout_ms = request.headers.get("connect-timeout-ms")
        seconds = int(timeout_ms) / 1000 if timeout_ms else None
        task = asyncio.create_task(self._pumped(process, line, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return StreamingResponse(line.said(), media_type="application/connect+json")

    async def _pumped(self, process: asyncio.subprocess.Process, line: Line, seconds: float | None) -> None:
        try:
            await self._pump(process, line, seconds)
        finally:
            process._transport.close()  # type: ignore[attr-defined]

    async def _pump(self, process: asyncio.subprocess.Process, line: Line, seconds: float | None) -> None:
        async def pipe(stream: asyncio.StreamReader, name: str) -> None:
            while data := await stream.read(CHUNK):
                await line.say(frame({"event": {"data": {name: base64.b64encode(data).decode()}}}))

        await line.say(frame({"event": {"start": {"pid": process.pid}}}))
        assert process.stdout
        assert process.stderr
        error: dict[str, Any] = {}
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(pipe(process.stdout, "stdout"), pipe(process.stderr, "stderr"))
                code = await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            error = {"error": {"code": "deadline_exceeded", "message": "the context's deadline has passed"}}
        else:
            exited = {"exitCode": max(code, -1), "exited": code >= 0, "status": f"exit status {code}"}
            await line.say(frame({"event": {"end": exited}}))
        del self._processes[process.pid]
        await ended(process)
        await line.say(frame(error, END_OF_STREAM))
        await line.say(None)

    async def _signal(self, request: Request) -> Response:
        pid = json.loads(await request.body())["process"]["pid"]
        if pid not in self._processes:
            return refused("not_found", f"process with pid {pid} not found", 404)
        os.killpg(pid, signal.SIGKILL)
        return JSONResponse({})

    async def _read(self, request: Request) -> Response:
        path, user = request.query_params["path"], request.query_params.get("username", "user")
        code, _ = await self._machine.ask('test -f "$1"', path, user=user)
        if code:
            return JSONResponse({"code": 404, "message": f"path '{path}' does not exist"}, 404)
        process = await self._machine.start(["cat", path], user=user)
        return StreamingResponse(chunks(process), media_type="application/octet-stream")

    async def _write(self, request: Request) -> Response:
        path, user = request.query_params["path"], request.query_params.get("username", "user")
        if request.headers.get("content-type") != "application/octet-stream":
            return JSONResponse({"code": 400, "message": "this double takes streams only"}, 400)
        content = await request.body()
        code, output = await self._machine.ask('mkdir -p "${1%/*}" && cat >"$1"', path, user=user, given=content)
        if code:
            return JSONResponse({"code": 500, "message": output.decode()}, 500)
        return JSONResponse([{"name": path.rpartition("/")[2], "type": "file", "path": path}])


async def _one(item: bytes) -> AsyncIterator[bytes]:
    yield item
