"""Calls of Daytona's REST API, of its control plane and of the toolbox in each machine, and what their refusals mean."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

import httpx

from providers.sandboxes.remote.cloud import CloudRefused, Refusal

_BY_STATUS: Final[Mapping[int, Refusal]] = {
    HTTPStatus.UNAUTHORIZED: "unauthorised",
    HTTPStatus.FORBIDDEN: "unauthorised",
    HTTPStatus.NOT_FOUND: "gone",
    HTTPStatus.REQUEST_TIMEOUT: "failed",
    HTTPStatus.TOO_MANY_REQUESTS: "busy",
    HTTPStatus.SERVICE_UNAVAILABLE: "busy",
}
ANSWER_MAX_BYTES: Final = 16_777_216


class Calls:
    """One client for one account. No call is repeated here."""

    def __init__(self, api_url: str, api_key: str | None, timeout_s: float) -> None:
        self._api_url = api_url.rstrip("/")
        self._api_key = api_key
        self._client = httpx.AsyncClient(timeout=httpx.Timeout(timeout_s, read=None))

    async def api(self, doing: str, method: str, path: str, **given: Any) -> Any:
        """Call the control plane; return the JSON of its answer, None if it is empty."""
        return await self.json(doing, method, f"{self._api_url}{path}", **given)

    async def json(self, doing: str, method: str, url: str, **given: Any) -> Any:
        """Call any address; return the JSON of its answer, None if it is empty."""
        async with self.streamed(doing, method, url, **given) as response:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > ANSWER_MAX_BYTES:
                    raise CloudRefused("failed", f"Daytona, {doing}: the answer has more than {ANSWER_MAX_BYTES} bytes")
            return httpx.Response(HTTPStatus.OK, content=bytes(body)).json() if body else None

    @asynccontextmanager
    async def streamed(self, doing: str, method: str, url: str, **given: Any) -> AsyncGenerator[httpx.Response, None]:
        """Call any address, and yield the answer before its body; raises `CloudRefused` for one that is none."""
        if not self._api_key:
            raise CloudRefused(
                "unauthorised", "Daytona needs an API key, and there is none: DAYTONA_API_KEY is not set"
            )
        headers = {"Authorization": f"Bearer {self._api_key}"}
        try:
            async with self._client.stream(method, url, headers=headers, **given) as response:
                if response.status_code >= HTTPStatus.BAD_REQUEST:
                    raise _refusal(doing, response.status_code, (await response.aread()).decode(errors="replace"))
                yield response
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise CloudRefused("unreachable", f"Daytona, {doing}: {str(error) or type(error).__name__}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise CloudRefused("failed", f"Daytona, {doing}: {str(error) or type(error).__name__}") from error

    async def aclose(self) -> None:
        """Close connections."""
        await self._client.aclose()


def _refusal(doing: str, status: int, body: str) -> CloudRefused:
    other: Refusal = "refused" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"
    kind: Refusal = _BY_STATUS.get(status) or other
    return CloudRefused(kind, f"Daytona, {doing}: {status} {body[:300]}")
