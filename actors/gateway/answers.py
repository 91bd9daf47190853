"""How an answer, and what a request asks for beside its turns, stand in an event."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import pydantic_core

from actors.gateway.unknown_fields import OTHERS_DIGEST, digest_of, said_in
from schemas.conversation import Part, Request, Text, ToolUse
from schemas.values import Message, ToolCall

PARAMETERS: Final = frozenset(Request.model_fields) - {"dialect", "turns", "tools", "others"}


def as_message(parts: Sequence[Part]) -> tuple[Message, tuple[Part, ...] | None]:
    """Return an answer as a plain message, and its parts where that does not hold all of them."""
    words = [part.text for part in parts if isinstance(part, Text)]
    calls = tuple(ToolCall(id=p.id, name=p.name, arguments=p.arguments) for p in parts if isinstance(p, ToolUse))
    message = Message(role="assistant", content="".join(words) if words else None, tool_calls=calls)
    plain: list[Part] = [Text(text=message.content)] if message.content is not None else []
    plain += [ToolUse(id=c.id, name=c.name, arguments=c.arguments) for c in calls]
    return message, None if plain == list(parts) else tuple(parts)


def tools_digest(request: Request) -> str | None:
    """Return the digest of the tools that a request offers, without where they may be cached; None for no list of them."""
    if request.tools is None:
        return None
    offered: list[Any] = [tool.model_dump(mode="json", exclude={"cache"}) for tool in request.tools]
    return hashlib.sha256(pydantic_core.to_json(offered)).hexdigest()


def parameters_of(request: Request) -> dict[str, Any]:
    """Return what a request asks for beside its turns and tools, where it says anything; of what nobody here knows the digest."""
    known = request.model_dump(mode="json", include=set(PARAMETERS), exclude_defaults=True)
    digest = digest_of(said_in(request))
    return {**known, OTHERS_DIGEST: digest} if digest else known
