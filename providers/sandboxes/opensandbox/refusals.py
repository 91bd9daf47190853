"""What OpenSandbox's client raises, in the few words that the rest of gym-bus knows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import httpx
from opensandbox.exceptions import (
    InvalidArgumentException,
    SandboxApiException,
    SandboxConnectionException,
    SandboxException,
)

from providers.sandboxes.remote.cloud import CloudRefused, Refusal

_BY_STATUS: Final[Mapping[int, Refusal]] = {
    HTTPStatus.UNAUTHORIZED: "unauthorised",
    HTTPStatus.FORBIDDEN: "unauthorised",
    HTTPStatus.TOO_MANY_REQUESTS: "busy",
    HTTPStatus.SERVICE_UNAVAILABLE: "busy",
}


@asynccontextmanager
async def refusals(doing: str, *, is_made: bool = True) -> AsyncGenerator[None, None]:
    """Turn what the client raises into `CloudRefused`; a machine that `is_made` and is not found is gone."""
    try:
        yield
    except CloudRefused:
        raise
    except (SandboxException, httpx.HTTPError, ValueError) as error:
        kind = _kind(error, is_made=is_made)
        raise CloudRefused(kind, f"OpenSandbox, {doing}: {str(error)[:500] or type(error).__name__}") from error


def _kind(error: Exception, *, is_made: bool) -> Refusal:
    if isinstance(error, SandboxConnectionException | httpx.ConnectError | httpx.ConnectTimeout):
        return "unreachable"
    if isinstance(error, InvalidArgumentException | ValueError):
        return "refused"
    status = error.status_code if isinstance(error, SandboxApiException) else None
    if status == HTTPStatus.NOT_FOUND and is_made:
        return "gone"
    is_ours = status is not None and HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    return _BY_STATUS.get(status or 0, "refused" if is_ours else "failed")
