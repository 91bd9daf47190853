"""An agent that runs somewhere else, small and whole: by HTTP, with its model behind the gateway, and one piece of work for a key.

What it does with a task is said by the first word of its question, in square brackets. It keeps its conversations itself, and is given
only what is new. Whoever goes away ends no work of its.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

LATER: Final = frozenset({"later", "held-later", "stuck", "forgets"})
HELD: Final = frozenset({"held", "held-later"})


@dataclass
class HttpAgent:
    """See the module. `posts` are the bodies that came, `begun` how often each key's work was begun, `polls` and `stopped` by key."""

    posts: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    begun: Counter[str] = field(default_factory=Counter)
    polls: Counter[str] = field(default_factory=Counter)
    stopped: list[str] = field(default_factory=list)
    told: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    _works: dict[str, asyncio.Task[dict[str, Any]]] = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        """Return the application to serve."""
        return Starlette(
            routes=[
                Route("/do", self._asked, methods=["POST"]),
                Route("/do/{key}", self._looked, methods=["GET"]),
                Route("/do/{key}", self._stopped, methods=["DELETE"]),
            ]
        )

    def keys(self, word: str) -> list[str]:
        """Return the keys of the requests for tasks of that word, in order."""
        return [body["idempotency_key"] for body in self.posts if word_of(body) == word]

    def session_of(self, word: str) -> str:
        """Return the session of the first request for a task of that word."""
        return next(str(body["session_id"]) for body in self.posts if word_of(body) == word)

    async def aclose(self) -> None:
        """End all work."""
        for work in self._works.values():
            work.cancel()
        await asyncio.gather(*self._works.values(), return_exceptions=True)

    async def _asked(self, request: Request) -> Response:
        body = await request.json()
        key, word = request.headers["idempotency-key"], word_of(body)
        assert key == body["idempotency_key"]
        self.posts.append(body)
        self.headers.append(dict(request.headers))
        match word:
            case "down":
                return JSONResponse({"message": "not now"}, 503)
            case "busy" if len(self.keys(word)) < 3:
                return Response("busy", 429, {"retry-after": "0"})
            case "wrong":
                return JSONResponse({"message": f"no such model: {body['model']}, said with {body['token']}"}, 422)
            case "babbles":
                return Response("<html>", 200)
            case _:
                work = self._work(key, body)
        if word in LATER:
            return JSONResponse({"status_url": f"/do/{key}"}, 202, {"retry-after": "0"})
        return JSONResponse(await asyncio.shield(work))

    def _work(self, key: str, body: dict[str, Any]) -> asyncio.Task[dict[str, Any]]:
        if key not in self._works:
            self.begun[key] += 1
            self._works[key] = asyncio.create_task(self._done(body))
        return self._works[key]

    async def _looked(self, request: Request) -> Response:
        key = request.path_params["key"]
        self.polls[key] += 1
        if self.polls[key] == 1 and key in self.keys("forgets"):
            return Response("never heard of it", 404)
        work = self._works[key]
        return JSONResponse(work.result()) if work.done() else JSONResponse({}, 202)

    async def _stopped(self, request: Request) -> Response:
        self.stopped.append(request.path_params["key"])
        return Response(status_code=204)

    async def _done(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ask the model with all that was said in the session, and return the last answer."""
        word, told = word_of(body), self.told.setdefault(body["session_id"], [])
        told += body["messages"]
        if word in HELD:
            await self.may_end.wait()
        if word == "stuck":
            await asyncio.Event().wait()
        async with httpx.AsyncClient(timeout=30) as http:
            if word == "notes":
                noted = await http.post(f"{body['tools_url']}/note", json={"text": "seen"})
                assert noted.json()["is_error"] is False, noted.text
            asked = {"model": body["model"], "messages": told}
            answered = await http.post(f"{body['base_url']}/v1/chat/completions", json=asked)
            answered.raise_for_status()
        told.append(answered.json()["choices"][0]["message"])
        return {"messages": [{"role": "assistant", "content": told[-1]["content"]}], **EXTRA.get(word, {})}


EXTRA: Final[dict[str, dict[str, Any]]] = {
    "clean": {"cleanup_confirmed": True},
    "unclean": {"cleanup_confirmed": False},
    "gives-up": {"error": {"kind": "tired", "message": "No more."}},
}
"""What else it says in the end."""


def word_of(body: dict[str, Any]) -> str:
    """Return what a task is to show."""
    first = str(body["messages"][0]["content"])
    return first.partition("[")[2].partition("]")[0]
