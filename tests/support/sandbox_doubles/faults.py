"""What goes wrong with a double when a test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

KEY = "key-of-a-test"


@dataclass
class Fault:
    """The next `times` requests whose method and path begin with `what` get `status`; or, without one, wait for `delay_s`, then go on.

    With `cut_bytes`, the answer's connection is dropped after so many bytes.
    """

    what: str
    status: int | None = None
    times: int = 1
    delay_s: float = 0
    cut_bytes: int | None = None


@dataclass
class Faults:
    """An application around a double's own. `seen` are the requests, in order: method and path."""

    app: ASGIApp
    error: str
    planned: list[Fault] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Do what is planned for this request, or what the double does."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = f"{scope['method']} {scope['path']}"
        self.seen.append(request)
        fault = next((f for f in self.planned if f.times and request.startswith(f.what)), None)
        if fault is None:
            await self.app(scope, receive, send)
            return
        fault.times -= 1
        if fault.status is not None:
            body = {"code": self.error.format(status=fault.status), "message": "planned by a test"}
            await JSONResponse(body, fault.status)(scope, receive, send)
            return
        await asyncio.sleep(fault.delay_s)
        await self.app(scope, receive, _Cut(send, fault.cut_bytes) if fault.cut_bytes is not None else send)


class Cut(Exception):
    """The connection is dropped by this."""


class _Cut:
    def __init__(self, send: Send, after: int) -> None:
        self._send = send
        self._left = after

    async def __call__(self, message: object) -> None:
        assert isinstance(message, dict)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise Cut
        await self._send(message)
