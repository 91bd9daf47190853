"""What whole and streamed answers write alike."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.cutting import given_to
from schemas.conversation import Part, Request, ToolUse

BETWEEN_THOUGHTS: Final = "\n\n"


def shows_thoughts(request: Request) -> bool:
    """Say whether a client asks to read what was thought (`includeThoughts`)."""
    return request.thinking is not None and request.thinking.summary is not None


def check_call(call: ToolUse, path: str) -> None:
    """Raise `Unexpressible` for a call of a tool that Gemini has no kind of."""
    if call.kind == "custom":
        raise Unexpressible(path, "Gemini has no custom tools, which take free text")
    if call.namespace is not None:
        raise Unexpressible(f"{path}.namespace", "Gemini has no namespaces of tools")


def write_call(call: ToolUse, path: str) -> dict[str, Any]:
    """Return the part that is a call; raises `Unexpressible` for arguments that are no JSON object."""
    check_call(call, path)
    return {"functionCall": {"id": call.id, "name": call.name, "args": given_to(call, f"{path}.arguments")}}


def no_place(part: Part, index: int) -> Unexpressible:
    """Return the error for a part that no answer holds."""
    return Unexpressible(f"parts.{index}", f"an answer of Gemini's holds no {part.type}")
