"""What E2B's client raises, in the few words that the rest of gym-bus knows."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import e2b
import httpx
from e2b.exceptions import SandboxUnreachableException, ServiceBusyException

from providers.sandboxes.remote.cloud import CloudRefused, Refusal

_KINDS: Final[tuple[tuple[type[Exception], Refusal], ...]] = (
    (e2b.AuthenticationException, "unauthorised"),
    (e2b.RateLimitException, "busy"),
    (ServiceBusyException, "busy"),
    (e2b.SandboxNotFoundException, "gone"),
    (e2b.SandboxNotRunningException, "gone"),
    (SandboxUnreachableException, "failed"),
    (e2b.TimeoutException, "failed"),
    (e2b.NotFoundException, "refused"),
    (e2b.InvalidArgumentException, "refused"),
    (e2b.NotEnoughSpaceException, "refused"),
    (e2b.TemplateException, "refused"),
    (e2b.BuildException, "refused"),
    (httpx.ConnectError, "unreachable"),
    (httpx.ConnectTimeout, "unreachable"),
)
"""The first that fits counts."""


@asynccontextmanager
async def refusals(doing: str) -> AsyncGenerator[None, None]:
    """Turn what the client raises into `CloudRefused`."""
    try:
        yield
    except CloudRefused:
        raise
    except Exception as error:  # the client raises bare `Exception` for some answers
        raise CloudRefused(_kind(error), f"E2B, {doing}: {_words(error)}") from error


def _kind(error: Exception) -> Refusal:
    for kind, word in _KINDS:
        if isinstance(error, kind):
            return word
    status = error.status_code if isinstance(error, e2b.SandboxException) else None
    if status == HTTPStatus.FORBIDDEN:
        return "unauthorised"
    return "refused" if status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR else "failed"


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:500]
