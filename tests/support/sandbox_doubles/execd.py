"""What runs in each of OpenSandbox's machines: commands whose output is told line by line, and files.

As the real one does, it lets a command write into a file and tells each line of it without what ended it; an empty line is told as
a newline.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.support.sandbox_doubles.envd import chunks, ended
from tests.support.sandbox_doubles.machines import USERS, DoubleMachine

TAIL_S = 0.02
NAMES = {uid: name for name, uid in USERS.items()}


class Execd:
    """The daemon of one machine; commands run as root unless told otherwise."""

    def __init__(self, machine: DoubleMachine, directory: Path) -> None:
        self._machine = machine
        self._directory = directory

    async def handle(self, request: Request, path: str) -> Response:
        """Answer a call that was routed to this machine."""
        match request.method, path:
            case "GET", "/ping":
                return Response()
            case "POST", "/command":
                return StreamingResponse(self._run(await request.json()), media_type="text/event-stream")
            case "POST", "/files/upload":
                return await self._upload(request)
            case "GET", "/files/download":
                return await self._download(request)
        return JSONResponse({"code": "NOT_FOUND", "message": path}, 404)

    async def _run(self, asked: dict[str, Any]) -> AsyncIterator[bytes]:
        output = self._directory / secrets.token_hex(8)
        with output.open("wb") as file:
            process = await self._machine.start(
                ["/bin/bash", "-c", asked["command"]],
                user=NAMES[asked.get("uid", 0)],
                stdout=file.fileno(),
                stderr=asyncio.subprocess.DEVNULL,
            )
        try:
            yield event("init", text=secrets.token_hex(8))
            lines = Lines(output)
            limit_s = asked.get("timeout", 3_600_000) / 1000
            began = time.monotonic()
            while process.returncode is None:
                with suppress(TimeoutError):
                    async with asyncio.timeout(TAIL_S):
                        await process.wait()
                for line in lines.read():
                    yield event("stdout", text=line)
                if time.monotonic() - began > limit_s:
                    os.killpg(process.pid, signal.SIGKILL)
            for line in lines.read(to_end=True):
                yield event("stdout", text=line)
            if process.returncode:
                error = {"ename": "CommandExecError", "evalue": str(process.returncode), "traceback": []}
                yield event("error", error=error)
            else:
                yield event("execution_complete", execution_time=1)
        finally:
            await ended(process)
            output.unlink()

    async def _upload(self, request: Request) -> Response:
        metas_and_files = parts(await request.body(), request.headers["content-type"].partition("boundary=")[2])
        for meta, content in zip(metas_and_files[::2], metas_and_files[1::2], strict=True):
            said = json.loads(meta)
            script = 'mkdir -p "${1%/*}" && cat >"$1" && chmod "$2" "$1"'
            code, output = await self._machine.ask(script, said["path"], str(said["mode"]), user="root", given=content)
            if code:
                return JSONResponse({"code": "INTERNAL", "message": output.decode()}, 500)
        return Response()

    async def _download(self, request: Request) -> Response:
        path = request.query_params["path"]
        code, _ = await self._machine.ask('test -f "$1"', path, user="root")
        if code:
            return JSONResponse({"code": "FILE_NOT_FOUND", "message": path}, 404)
        return StreamingResponse(chunks(await self._machine.start(["cat", path], user="root")))


def parts(body: bytes, boundary: str) -> list[bytes]:
    """Return the contents of a multipart body, in order."""
    return [one.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for one in body.split(f"--{boundary}".encode())[1:-1]]


def event(kind: str, **fields: Any) -> bytes:
    """Return an event as it is streamed."""
    return b"data: " + json.dumps({"type": kind, "timestamp": int(time.time() * 1000), **fields}).encode() + b"\n\n"


class Lines:
    """Reads what is appended to a file, line by line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._pending = b""

    def read(self, *, to_end: bool = False) -> list[str]:
        """Return the lines that are whole; `to_end`, the last one too."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        self._offset += len(data)
        *whole, self._pending = (self._pending + data).split(b"\n")
        if to_end and self._pending:
            whole.append(self._pending)
            self._pending = b""
        return [line.decode(errors="replace") or "\n" for line in whole]
