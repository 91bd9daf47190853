"""Errors as Chat Completions tells them, whole or in mid-stream: one object under `error`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from providers.dialects.base import Problem

TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
SERVER_ERROR_FROM: Final = 500


def write_problem(problem: Problem) -> dict[str, Any]:
    """Return the body of an error; its type follows from the HTTP status."""
    is_server_error = problem.status >= SERVER_ERROR_FROM
    type_ = "server_error" if is_server_error else TYPES.get(problem.status, "invalid_request_error")
    return error_body(problem.message, type_, problem.code, problem.field)


def read_error(error: Any) -> tuple[str, str | None]:
    """Return a backend's words about its failure, and its code: most have a `message`, some are bare strings."""
    if not isinstance(error, dict):
        return (error, None) if isinstance(error, str) else ("the backend failed and said no more", None)
    message, code = error.get("message"), error.get("code")
    if not isinstance(code, str | int):
        code = error.get("type")
    told = message if isinstance(message, str) else f"the backend failed and told of {', '.join(error) or 'nothing'}"
    return told, str(code) if isinstance(code, str | int) else None


def error_body(message: str, type_: str, code: str | None, param: str | None = None) -> dict[str, Any]:
    """Return an `error` object with OpenAI's four fields."""
    return {"error": {"message": message, "type": type_, "param": param, "code": code}}
