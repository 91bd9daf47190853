"""One call through a gateway in each dialect, and how its answer is read."""

from __future__ import annotations

from typing import Any, Final

import httpx

from providers.dialects.catalog import DIALECTS
from providers.dialects.gemini.problems import STATUSES
from schemas.conversation import DialectName, Reply, Text, TokenUsage
from tests.support.gateway_place import GatewayPlace

BODIES: dict[DialectName, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hello"}]},
    "responses": {"model": "m", "input": "hello"},
    "messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
}
GEMINI: Final = "/v1beta/models/m"
PATHS: dict[DialectName, str] = {
    **{name: dialect.path for name, dialect in DIALECTS.items()},
    "gemini": f"{GEMINI}:generateContent",
}
BACKENDS: list[DialectName] = ["chat", "responses", "messages"]
NAMES: list[DialectName] = [*BACKENDS, "gemini"]
"""What clients speak."""


def words(text: str = "hi", dialect: DialectName = "chat") -> Reply:
    """Return an answer of two tokens to a question of three."""
    usage = TokenUsage(input_tokens=3, output_tokens=2)
    return Reply(dialect=dialect, id="reply1", model="up", parts=(Text(text=text),), stop_reason="stop", usage=usage)


async def post(
    place: GatewayPlace, client: DialectName = "chat", *, url: str = "", token: str | None = None, **more: Any
) -> httpx.Response:
    """Make a call in a dialect; `more` goes into its body."""
    headers = {"authorization": f"Bearer {place.token if token is None else token}"}
    path = PATHS[client]
    if client == "gemini" and more.pop("stream", False):
        path = f"{GEMINI}:streamGenerateContent?alt=sse"
    async with httpx.AsyncClient(timeout=20) as http:
        return await http.post(f"{url or place.url}{path}", json={**BODIES[client], **more}, headers=headers)


def message_of(client: DialectName, answer: httpx.Response) -> str:
    """Return an error's words where the client's dialect has them, and check its shape."""
    body = answer.json()
    if client == "messages":
        assert body["type"] == "error"
    if client == "gemini":
        assert (body["error"]["code"], body["error"]["status"]) == (answer.status_code, STATUSES[answer.status_code])
    return str(body["error"]["message"])
