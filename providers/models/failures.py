"""What went wrong with a call of a model, in our terms, by what came over HTTP; no client's library is needed to say it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

from providers.models.base import ModelError
from schemas.values import Failure, FailureKind

RETRY_AFTER_MAX_S: Final = 600.0
SHOWN_CHARACTERS: Final = 200
_OVERFLOW: Final = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum context|max_model_len|maximum (model|input) length"
    r"|(prompt|input)( \([^)]*\))? is too long|too many (input )?tokens|input tokens exceed|maximum number of tokens"
    r"|max(_completion)?_tokens'? (is|must be)[^\"]{0,40} (too large|at least 1, got -)|max_new_tokens` must be",
    re.IGNORECASE,
)
_OVERFLOW_CODE: Final = re.compile(r"context_length_exceeded|ContextWindowExceeded|exceed_context_size_error")
_OVERFLOW_STATUS: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")


def failed(
    kind: FailureKind, message: str, *, terminal: bool = False, retry_after_s: float | None = None
) -> ModelError:
    """Return the error for a failed call."""
    return ModelError(Failure(kind=kind, message=message, stage="model", terminal=terminal), retry_after_s)


def without_secrets(text: str, api_key: str | None) -> str:
    """Return `text` without the key, and without a password inside a URL."""
    text = _CREDENTIALS.sub("", text)
    return text.replace(api_key, "[redacted]") if api_key else text


def shown(body: str) -> str:
    """Return the beginning of a foreign body on one line, fit to be stored."""
    return (
        " ".join(body[: 4 * SHOWN_CHARACTERS].encode(errors="replace").decode().split())[:SHOWN_CHARACTERS] or "(empty)"
    )


def failure_of(status: int, headers: Mapping[str, str], body: str, url: str) -> ModelError:
    """Return what stands for an answer with the HTTP `status`, which is not success."""
    kind: FailureKind
    text = f"{url} answered {status}: {shown(body)}"
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return failed("provider_auth", f"{text}. Check policy_api_key", terminal=True)
        case HTTPStatus.TOO_MANY_REQUESTS:
            return failed("provider_rate_limited", text, retry_after_s=retry_after_s(headers))
        case _ if _is_overflow(status, body):
            return failed("context_overflow", text, terminal=True)
        case HTTPStatus.REQUEST_TIMEOUT:
            return failed("transport_timeout", text, retry_after_s=retry_after_s(headers))
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return failed("provider_unavailable", text, retry_after_s=retry_after_s(headers))
        case _ if status < HTTPStatus.BAD_REQUEST:  # no error, and no answer
            where = f" (redirect to {shown(headers['location'])})" if "location" in headers else ""
            kind, text, is_terminal = "provider_bad_answer", text + where, status >= HTTPStatus.MULTIPLE_CHOICES
        case _:
            kind, is_terminal = "provider_bad_request", True
    return failed(kind, text, terminal=is_terminal)


def _is_overflow(status: int, body: str) -> bool:
    """Say whether a conversation was too long: by a code whatever the status (litellm has 500s), by words of a refusal."""
    return bool(_OVERFLOW_CODE.search(body) or (status in _OVERFLOW_STATUS and _OVERFLOW.search(body)))


def answer_failure(said: str, url: str) -> ModelError:
    """Return what stands for an answer that began well and is none: backends say in mid-answer, too, that it was too long."""
    if _OVERFLOW_CODE.search(said):
        return failed("context_overflow", f"{url}: {said}", terminal=True)
    return failed("provider_bad_answer", f"{url}: {said}")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return how long the backend asks us to wait, in seconds, bounded; None if it does not say so clearly."""
    milliseconds, value = headers.get("retry-after-ms"), headers.get("retry-after")
    try:
        if milliseconds is not None:
            seconds = float(milliseconds) / 1000
        elif value is None:
            return None
        elif re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            seconds = float(value)
        else:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_MAX_S) if seconds == seconds else None  # noqa: PLR0124  NaN
