"""Errors as Anthropic tells them: as a whole answer, and in the middle of a stream."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Problem
from schemas.conversation import ReplyBroke

TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
SERVER_ERRORS_FROM: Final = 500


def problem_body(problem: Problem) -> dict[str, Any]:
    """Return an error's body; its message begins with the field that it is about, its `code` stands beside the type."""
    other = "api_error" if problem.status >= SERVER_ERRORS_FROM else "invalid_request_error"
    names_it = problem.field is None or problem.field in problem.message
    message = problem.message if names_it else f"{problem.field}: {problem.message}"
    error = {"type": TYPES.get(problem.status, other), "message": message, "code": problem.code}
    return {"type": "error", "error": error}


def broken_body(broke: ReplyBroke) -> dict[str, Any]:
    """Return the data of an `error` event: what the backend said if it said it in this dialect, else its message."""
    if broke.body.get("type") == "error" and isinstance(broke.body.get("error"), dict):
        return broke.body
    kind = broke.code if broke.code in TYPES.values() else "api_error"
    return {"type": "error", "error": {"type": kind, "message": broke.message}}


def read_broken(body: dict[str, Any]) -> ReplyBroke:
    """Return what an `error` event says."""
    error = body.get("error")
    told = error if isinstance(error, dict) else {}
    message = told.get("message") or body.get("message") or (error if isinstance(error, str) else "the backend failed")
    code = told.get("type")
    return ReplyBroke(message=str(message), code=code if isinstance(code, str) else None, body=body)
