"""E2B: its control plane, and its edge, which leads each call about a machine to what runs in it."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.sandbox_doubles.envd import Envd
from tests.support.sandbox_doubles.faults import KEY, Faults
from tests.support.sandbox_doubles.machines import DoubleMachine
from tests.support.sandbox_doubles.serving import served_apart

ALL = ["GET", "POST", "PUT", "DELETE", "PATCH"]


@dataclass
class Kept:
    """One machine, as the control plane knows it."""

    id: str
    template: str
    metadata: dict[str, str]
    machine: DoubleMachine
    envd: Envd
    token: str
    ends_at: float
    network: dict[str, Any]
    is_paused: bool = False
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    def shown(self) -> dict[str, Any]:
        """Return what a list shows of it."""
        return {
            "sandboxID": self.id,
            "templateID": self.template,
            "clientID": "double",
            "startedAt": self.started,
            "endAt": datetime.fromtimestamp(self.ends_at, UTC).isoformat(),
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 1024,
            "envdVersion": "0.6.7",
            "state": "paused" if self.is_paused else "running",
            "metadata": self.metadata,
        }


class E2BDouble:
    """See the module. Machines keep their files under `directory`; `domain` is what their addresses end with."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.domain = "double.test"
        self.kept: dict[str, Kept] = {}
        self.made: dict[str, str] = {}
        self.templates = {"base"}
        self.builds: dict[str, dict[str, Any]] = {}
        routes = [
            Route("/v2/sandboxes", self._create, methods=["POST"]),
            Route("/v2/sandboxes", self._list, methods=["GET"]),
            Route("/sandboxes/{id}", self._kill, methods=["DELETE"]),
            Route("/sandboxes/{id}/timeout", self._timeout, methods=["POST"]),
            Route("/sandboxes/{id}/pause", self._pause, methods=["POST"]),
            Route("/sandboxes/{id}/network", self._network, methods=["PUT"]),
            Route("/v2/sandboxes/{id}/connect", self._connect, methods=["POST"]),
            Route("/templates/aliases/{name}", self._alias, methods=["GET"]),
            Route("/v3/templates", self._template, methods=["POST"]),
            Route("/v2/templates/{id}/builds/{build}", self._build, methods=["POST"]),
            Route("/templates/{id}/builds/{build}/status", self._build_status, methods=["GET"]),
            Route("/{path:path}", self._edge, methods=ALL),
        ]
        self.faults = Faults(Starlette(routes=routes), "{status}")

    def end(self, machine_id: str) -> None:
        """Let a machine be gone, as if its time were over."""
        self.kept.pop(machine_id).machine.kill()

    def close(self) -> None:
        """End every machine."""
        for machine_id in list(self.kept):
            self.end(machine_id)

    def _answer(self, request: Request) -> Kept | Response:
        self._expire()
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"code": 401, "message": "invalid API key"}, 401)
        found = self.kept.get(request.path_params.get("id", ""))
        return found or JSONResponse({"code": 404, "message": "sandbox not found"}, 404)

    def _expire(self) -> None:
        for one in list(self.kept.values()):
            if one.ends_at < time.time() and not one.is_paused:
                self.end(one.id)

    async def _create(self, request: Request) -> Response:
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"code": 401, "message": "invalid API key"}, 401)
        asked = await request.json()
        if asked["templateID"] not in self.templates:
            return JSONResponse({"code": 404, "message": f"template '{asked['templateID']}' not found"}, 404)
        machine_id = f"i{secrets.token_hex(10)}"
        machine = await asyncio.to_thread(DoubleMachine, self._directory / machine_id)
        self.kept[machine_id] = one = Kept(
            machine_id,
            asked["templateID"],
            asked["metadata"],
            machine,
            Envd(machine),
            secrets.token_hex(8),
            time.time() + asked["timeout"],
            asked.get("network", {}),
        )
        return JSONResponse(self._introduced(one), 201)

    def _introduced(self, one: Kept) -> dict[str, Any]:
        return {
            "sandboxID": one.id,
            "templateID": one.template,
            "clientID": "double",
            "envdVersion": "0.6.7",
            "envdAccessToken": one.token,
            "domain": self.domain,
        }

    async def _list(self, request: Request) -> Response:
        refused = self._answer(request)
        if isinstance(refused, Response) and refused.status_code == 401:
            return refused
        wanted = {
            unquote(name): unquote(values[0])
            for name, values in parse_qs(request.query_params.get("metadata", "")).items()
        }
        found = [one.shown() for one in self.kept.values() if wanted.items() <= one.metadata.items()]
        first, size = int(request.query_params.get("nextToken", 0)), int(request.query_params.get("limit", 100))
        headers = {"x-next-token": str(first + size)} if len(found) > first + size else {}
        return JSONResponse(found[first : first + size], headers=headers)

    async def _kill(self, request: Request) -> Response:
        match self._answer(request):
            case Kept(id=machine_id):
                self.end(machine_id)
                return Response(status_code=204)
            case refused:
                return refused

    async def _timeout(self, request: Request) -> Response:
        match self._answer(request):
            case Kept() as one:
                one.ends_at = time.time() + (await request.json())["timeout"]
                return Response(status_code=204)
            case refused:
                return refused

    async def _pause(self, request: Request) -> Response:
        match self._answer(request):
            case Kept(is_paused=True):
                return JSONResponse({"code": 409, "message": "already paused"}, 409)
            case Kept() as one:
                one.is_paused = True
                one.machine.freeze(is_on=True)
                return Response(status_code=204)
            case refused:
                return refused

    async def _connect(self, request: Request) -> Response:
        match self._answer(request):
            case Kept() as one:
                status = 201 if one.is_paused else 200
                one.is_paused = False
                one.machine.freeze(is_on=False)
                one.ends_at = time.time() + (await request.json())["timeout"]
                return JSONResponse(self._introduced(one), status)
            case refused:
                return refused

    async def _network(self, request: Request) -> Response:
        match self._answer(request):
            case Kept() as one:
                one.network = await request.json()
                return Response(status_code=204)
            case refused:
                return refused

    async def _alias(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.templates:
            return JSONResponse({"code": 404, "message": "no such alias"}, 404)
        return JSONResponse({"templateID": name, "public": False})

    async def _template(self, request: Request) -> Response:
        asked = await request.json()
        build = secrets.token_hex(8)
        self.builds[build] = {"name": asked["name"], "polls": 0}
        body = {"templateID": f"t{build}", "buildID": build, "aliases": [], "names": [], "tags": [], "public": False}
        return JSONResponse(body, 202)

    async def _build(self, request: Request) -> Response:
        self.builds[request.path_params["build"]]["asked"] = await request.json()
        return Response(status_code=202)

    async def _build_status(self, request: Request) -> Response:
        build = self.builds[request.path_params["build"]]
        build["polls"] += 1
        is_ready = build["polls"] > 1
        entry = {"timestamp": datetime.now(UTC).isoformat(), "level": "info", "message": f"step {build['polls']}"}
        offset = int(request.query_params.get("logsOffset", 0))
        if is_ready:
            self.templates.add(build["name"])
        return JSONResponse(
            {
                "templateID": request.path_params["id"],
                "buildID": request.path_params["build"],
                "status": "ready" if is_ready else "building",
                "logs": [],
                "logEntries": [entry] if offset < 2 else [],
            }
        )

    async def _edge(self, request: Request) -> Response:
        """Lead a call to a machine's daemon, or to a port of it."""
        self._expire()
        by_name = re.fullmatch(rf"(\d+)-(\w+)\.{re.escape(self.domain)}", request.headers.get("host", ""))
        machine_id = by_name[2] if by_name else request.headers.get("e2b-sandbox-id", "")
        one = self.kept.get(machine_id)
        if one is None or one.is_paused:
            body = {"sandboxId": machine_id, "message": "The sandbox was not found", "code": 502}
            return JSONResponse(body, 502)
        if by_name:
            async with httpx.AsyncClient(timeout=5) as client:
                answer = await client.request(request.method, f"http://127.0.0.1:{by_name[1]}{request.url.path}")
            return Response(answer.content, answer.status_code)
        if request.headers.get("x-access-token") != one.token:
            return JSONResponse({"code": "unauthenticated", "message": "invalid access token"}, 401)
        return await one.envd.handle(request)


@contextmanager
def e2b_double(directory: Path) -> Iterator[tuple[str, E2BDouble]]:
    """Serve a double; give its address and itself."""
    double = E2BDouble(directory)
    with served_apart(double.faults) as address:
        try:
            yield address, double
        finally:
            double.close()
