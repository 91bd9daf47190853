"""Errors as Google's APIs tell them, whole or in mid-stream: a status in words, and details about it."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Problem

STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    502: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
DOMAIN: Final = "gym-bus"


def write_problem(problem: Problem) -> dict[str, Any]:
    """Return an error's body; its `reason` is the stable code, and a violation names the field that it is about."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": problem.code, "domain": DOMAIN}
    details: list[dict[str, Any]] = [info]
    if problem.field is not None:
        violation = {"field": problem.field, "description": problem.message}
        details.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": [violation]})
    status = STATUSES.get(problem.status, "INTERNAL")
    return {"error": {"code": problem.status, "message": problem.message, "status": status, "details": details}}
