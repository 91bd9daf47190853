"""Writes errors in the shape in which OpenAI tells them."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Problem

TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def write_problem(problem: Problem) -> dict[str, Any]:
    """Return the body of an error."""
    type_ = TYPES.get(problem.status) or ("server_error" if problem.status >= 500 else "invalid_request_error")  # noqa: PLR2004
    return {"error": {"message": problem.message, "type": type_, "param": problem.field, "code": problem.code}}
