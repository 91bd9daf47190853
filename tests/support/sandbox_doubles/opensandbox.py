"""An OpenSandbox server: its lifecycle API, and the way to what runs in each machine."""

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
from urllib.parse import parse_qs

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.sandbox_doubles.execd import Execd
from tests.support.sandbox_doubles.faults import KEY, Faults
from tests.support.sandbox_doubles.machines import DoubleMachine
from tests.support.sandbox_doubles.serving import served_apart

ALL = ["GET", "POST", "PUT", "DELETE", "PATCH"]
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")


@dataclass
class Kept:
    """One machine, as the server knows it."""

    id: str
    asked: dict[str, Any]
    machine: DoubleMachine
    execd: Execd
    ends_at: float
    rules: list[dict[str, str]]
    is_paused: bool = False
    polls: int = 0
    made: str = field(default_factory=lambda: datetime.now(UTC).isoformat())

    @property
    def metadata(self) -> dict[str, str]:
        """Return what was written on it."""
        found: dict[str, str] = self.asked["metadata"]
        return found

    def shown(self) -> dict[str, Any]:
        """Return what is shown of it."""
        return {
            "id": self.id,
            "status": {"state": "Paused" if self.is_paused else "Running"},
            "entrypoint": self.asked["entrypoint"],
            "image": self.asked["image"],
            "createdAt": self.made,
            "expiresAt": datetime.fromtimestamp(self.ends_at, UTC).isoformat(),
            "metadata": self.metadata,
        }


class OpenSandboxDouble:
    """See the module. Each machine's daemon answers after `slow_polls` questions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.kept: dict[str, Kept] = {}
        self.slow_polls = 1
        routes = [
            Route("/v1/sandboxes", self._create, methods=["POST"]),
            Route("/v1/sandboxes", self._list, methods=["GET"]),
            Route("/v1/sandboxes/{id}", self._one, methods=["GET", "DELETE"]),
            Route("/v1/sandboxes/{id}/endpoints/{port}", self._endpoint, methods=["GET"]),
            Route("/v1/sandboxes/{id}/{verb}", self._verb, methods=["POST"]),
            Route("/to/{id}/{port}{path:path}", self._to, methods=ALL),
        ]
        self.faults = Faults(Starlette(routes=routes), "ERROR_{status}")

    def end(self, machine_id: str) -> None:
        """Let a machine be gone, as if its time were over."""
        self.kept.pop(machine_id).machine.kill()

    def close(self) -> None:
        """End every machine."""
        for machine_id in list(self.kept):
            self.end(machine_id)

    def _refused(self, request: Request) -> Response | None:
        for one in list(self.kept.values()):
            if one.ends_at < time.time() and not one.is_paused:
                self.end(one.id)
        if request.headers.get("open-sandbox-api-key") != KEY:
            return JSONResponse({"code": "UNAUTHORIZED", "message": "invalid API key"}, 401)
        machine_id = request.path_params.get("id")
        if machine_id is not None and machine_id not in self.kept:
            return JSONResponse({"code": "SANDBOX_NOT_FOUND", "message": f"no sandbox {machine_id}"}, 404)
        return None

    async def _create(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        asked = await request.json()
        if asked["image"]["uri"] == "nowhere:1":
            return JSONResponse({"code": "IMAGE_NOT_FOUND", "message": "no image nowhere:1"}, 400)
        if bad := [v for v in asked["metadata"].values() if not LABEL_VALUE.fullmatch(v)]:
            return JSONResponse({"code": "INVALID_METADATA", "message": str(bad)}, 400)
        machine_id = secrets.token_hex(8)
        directory = self._directory / machine_id
        machine = await asyncio.to_thread(DoubleMachine, directory / "root")
        (directory / "out").mkdir()
        rules = asked.get("networkPolicy", {}).get("egress", [])
        one = Kept(machine_id, asked, machine, Execd(machine, directory / "out"), time.time() + asked["timeout"], rules)
        self.kept[machine_id] = one
        return JSONResponse(one.shown(), 202)

    async def _list(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        wanted = {k: v[0] for k, v in parse_qs(request.query_params.get("metadata", "")).items()}
        found = [one.shown() for one in self.kept.values() if wanted.items() <= one.metadata.items()]
        page, size = int(request.query_params.get("page", 1)), int(request.query_params.get("pageSize", 20))
        pages = -(-len(found) // size)
        pagination = {
            "page": page,
            "pageSize": size,
            "totalItems": len(found),
            "totalPages": pages,
            "hasNextPage": page < pages,
        }
        return JSONResponse({"items": found[(page - 1) * size : page * size], "pagination": pagination})

    async def _one(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        machine_id = request.path_params["id"]
        if request.method == "GET":
            return JSONResponse(self.kept[machine_id].shown())
        self.end(machine_id)
        return Response(status_code=204)

    async def _endpoint(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        return JSONResponse(
            {"endpoint": f"{request.url.netloc}/to/{request.path_params['id']}/{request.path_params['port']}"}
        )

    async def _verb(self, request: Request) -> Response:
        if refused := self._refused(request):
            return refused
        one = self.kept[request.path_params["id"]]
        match request.path_params["verb"]:
            case "renew-expiration":
                until = datetime.fromisoformat((await request.json())["expiresAt"])
                one.ends_at = until.timestamp()
                return JSONResponse({"expiresAt": until.isoformat()})
            case "pause" | "resume" as verb:
                one.is_paused = verb == "pause"
                one.machine.freeze(is_on=one.is_paused)
                return Response(status_code=202)
        return JSONResponse({"code": "NOT_FOUND", "message": request.url.path}, 404)

    async def _to(self, request: Request) -> Response:
        """Lead a call to a machine's daemon, to what keeps its policy, or to a port of it."""
        one = self.kept.get(request.path_params["id"])
        if one is None:
            return JSONResponse({"code": "SANDBOX_NOT_FOUND", "message": "no such sandbox"}, 404)
        if one.is_paused:
            return JSONResponse({"code": "PAUSED", "message": "the sandbox is paused"}, 503)
        port, path = request.path_params["port"], request.path_params["path"]
        if port == "44772":
            one.polls += 1
            if one.polls <= self.slow_polls:
                return JSONResponse({"code": "STARTING", "message": "not yet"}, 503)
            return await one.execd.handle(request, path)
        if port == "18080":
            return await self._policy(request, one)
        async with httpx.AsyncClient(timeout=5) as client:
            answer = await client.request(request.method, f"http://127.0.0.1:{port}{path}")
        return Response(answer.content, answer.status_code)

    async def _policy(self, request: Request, one: Kept) -> Response:
        if "networkPolicy" not in one.asked:
            return JSONResponse({"code": "NO_POLICY", "message": "made without a policy"}, 404)
        match request.method:
            case "PATCH":
                one.rules += await request.json()
            case "DELETE":
                gone = await request.json()
                one.rules = [rule for rule in one.rules if rule["target"] not in gone]
        return JSONResponse({"status": "ok", "policy": {"defaultAction": "deny", "egress": one.rules}})


@contextmanager
def opensandbox_double(directory: Path) -> Iterator[tuple[str, OpenSandboxDouble]]:
    """Serve a double; give its address (`host:port`) and itself."""
    double = OpenSandboxDouble(directory)
    with served_apart(double.faults) as address:
        try:
            yield address.removeprefix("http://"), double
        finally:
            double.close()
