"""Daytona: its control plane, and the toolbox in each machine."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.sandbox_doubles.envd import chunks, ended
from tests.support.sandbox_doubles.execd import parts
from tests.support.sandbox_doubles.faults import KEY, Faults
from tests.support.sandbox_doubles.machines import DoubleMachine
from tests.support.sandbox_doubles.serving import served_apart

USER = "user"


@dataclass
class Kept:
    """One machine, as the control plane knows it."""

    id: str
    asked: dict[str, Any]
    machine: DoubleMachine
    used_at: float = field(default_factory=time.time)
    polls: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """Return what was written on it."""
        found: dict[str, str] = self.asked["labels"]
        return found


class DaytonaDouble:
    """See the module. A machine has started at the `slow_polls`-th look; its minutes last `minute_s`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.kept: dict[str, Kept] = {}
        self.slow_polls = 1
        self.minute_s = 60.0
        routes = [
            Route("/api/sandbox", self._create, methods=["POST"]),
            Route("/api/sandbox", self._list, methods=["GET"]),
            Route("/api/sandbox/{id}", self._one, methods=["GET", "DELETE"]),
            Route("/api/sandbox/{id}/last-activity", self._used, methods=["POST"]),
            Route("/api/sandbox/{id}/network-settings", self._network, methods=["POST"]),
            Route("/api/sandbox/{id}/ports/{port}/signed-preview-url", self._preview, methods=["GET"]),
            Route("/toolbox/{id}/process/execute", self._execute, methods=["POST"]),
            Route("/toolbox/{id}/files/upload-v2", self._upload, methods=["POST"]),
            Route("/toolbox/{id}/files/download", self._download, methods=["GET"]),
            Route("/preview/{id}/{port}/{path:path}", self._port, methods=["GET"]),
        ]
        self.faults = Faults(Starlette(routes=routes), "{status}")

    def end(self, machine_id: str) -> None:
        """Let a machine be gone, as if its time were over."""
        self.kept.pop(machine_id).machine.kill()

    def close(self) -> None:
        """End every machine."""
        for machine_id in list(self.kept):
            self.end(machine_id)

    def _refused(self, request: Request) -> Response | None:
        for one in list(self.kept.values()):
            if one.used_at + one.asked["autoStopInterval"] * self.minute_s < time.time():
                self.end(one.id)
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"statusCode": 401, "message": "Unauthorized"}, 401)
        machine_id = request.path_params.get("id")
        if machine_id is not None and machine_id not in self.kept:
            return JSONResponse({"statusCode": 404, "message": f"Sandbox {machine_id} not found"}, 404)
        return None

    def _shown(self, request: Request, one: Kept) -> dict[str, Any]:
        state = "started" if one.polls >= self.slow_polls else "creating"
        url = f"http://{request.url.netloc}/toolbox"
        return {"id": one.id, "labels": one.labels, "state": state, "toolboxProxyUrl": url}

    async def _create(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        asked = await request.json()
        if asked.get("snapshot") == "nowhere":
            return JSONResponse({"statusCode": 404, "message": "Snapshot nowhere not found"}, 404)
        machine_id = secrets.token_hex(8)
        machine = await asyncio.to_thread(DoubleMachine, self._directory / machine_id)
        (self._directory / machine_id / "home/user").chmod(0o755)
        self.kept[machine_id] = one = Kept(machine_id, asked, machine)
        return JSONResponse(self._shown(request, one), 200)

    async def _list(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        wanted = json.loads(request.query_params["labels"])
        first, size = int(request.query_params.get("cursor", 0)), int(request.query_params["limit"])
        found = [self._shown(request, one) for one in self.kept.values() if wanted.items() <= one.labels.items()]
        rest = str(first + size) if len(found) > first + size else None
        return JSONResponse({"items": found[first : first + size], "nextCursor": rest})

    async def _one(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        one = self.kept[request.path_params["id"]]
        one.polls += 1
        shown = self._shown(request, one)
        if request.method == "DELETE":
            self.end(one.id)
        return JSONResponse(shown)

    async def _used(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        self.kept[request.path_params["id"]].used_at = time.time()
        return Response(status_code=201)

    async def _network(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        one = self.kept[request.path_params["id"]]
        one.asked |= await request.json()
        return JSONResponse(self._shown(request, one))

    async def _preview(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        port = request.path_params["port"]
        return JSONResponse(
            {"url": f"http://{request.url.netloc}/preview/{request.path_params['id']}/{port}", "port": port}
        )

    async def _port(self, request: Request) -> Response:
        async with httpx.AsyncClient(timeout=5) as client:
            answer = await client.get(f"http://127.0.0.1:{request.path_params['port']}/{request.path_params['path']}")
        return Response(answer.content, answer.status_code)

    async def _execute(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        one, asked = self.kept[request.path_params["id"]], await request.json()
        one.used_at = time.time()
        process = await one.machine.start(
            ["/bin/bash", "-c", asked["command"]], user=USER, stderr=asyncio.subprocess.STDOUT
        )
        try:
            async with asyncio.timeout(asked.get("timeout", 10)):
                output, _ = await process.communicate()
        except TimeoutError:
            return JSONResponse({"statusCode": 408, "message": "command execution timeout"}, 408)
        finally:
            await ended(process)
        return JSONResponse({"exitCode": process.returncode, "result": output.decode(errors="replace")})

    async def _upload(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        (content,) = parts(await request.body(), request.headers["content-type"].partition("boundary=")[2])
        code, output = await self.kept[request.path_params["id"]].machine.ask(
            'mkdir -p "${1%/*}" && cat >"$1"', request.query_params["path"], user=USER, given=content
        )
        return JSONResponse({"message": output.decode()}, 400 if code else 200)

    async def _download(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        machine = self.kept[request.path_params["id"]].machine
        return StreamingResponse(chunks(await machine.start(["cat", request.query_params["path"]], user=USER)))


@contextmanager
def daytona_double(directory: Path) -> Iterator[tuple[str, DaytonaDouble]]:
    """Serve a double; give the address of its API and itself."""
    double = DaytonaDouble(directory)
    with served_apart(double.faults) as address:
        try:
            yield f"{address}/api", double
        finally:
            double.close()
