"""A request written for a backend, whatever dialect it was asked in."""

from __future__ import annotations

from typing import Any

from providers.dialects.base import Unexpressible, Written
from providers.dialects.chat.messages_writing import write_messages
from providers.dialects.chat.parts import Writing
from providers.dialects.chat.settings import write_settings
from providers.dialects.chat.tools import write_tools
from providers.dialects.chat.unknown import put_back
from providers.dialects.neutral import changes_no_answer
from schemas.conversation import Request


def write_request(request: Request, limit_field: str) -> Written:
    """Return the body; raises `Unexpressible` for what Chat Completions cannot say."""
    writing = Writing(is_own=request.dialect == "chat")
    body: dict[str, Any] = {
        "model": request.model,
        "messages": write_messages(request.turns, writing),
        **write_tools(request, writing),
        **write_settings(request, writing, limit_field),
    }
    if writing.is_own:
        put_back(body, {name: value for name, value in request.others.items() if name != "stream_options"})
    else:
        _leave_out(request, writing)
    return Written(body, tuple(dict.fromkeys(writing.dropped)))


def _leave_out(request: Request, writing: Writing) -> None:
    """List the fields of another dialect as left out; raises `Unexpressible` for one that changes the answer."""
    for name, value in request.others.items():
        if not changes_no_answer(name, value):
            raise Unexpressible(name, f"is a field of {request.dialect!r} that Chat Completions has no words for")
        writing.dropped.append(name)
