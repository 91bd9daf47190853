"""Digests of conversations, turn by turn, in a form that no client's habits change.

Clients re-serialise arguments, swap strings and lists of text, move cache hints, drop thoughts, strip characters from ids. None of
that tells a model anything new, so none of it counts here: a turn is compared by its words, its calls as parsed JSON, its results.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

from schemas.conversation import Data, File, Hosted, Part, Reasoning, Refusal, Request, Text, ToolResult, ToolUse, Turn

ROOT: Final = "root"


def continued_reply(request: Request) -> str | None:
    """Return the id of the answer that a request goes on from without repeating it, as Responses can; None if it says all itself."""
    named = request.others.get("previous_response_id")
    return named if isinstance(named, str) and named else None


def links_of(turns: Sequence[Turn], begin: str = ROOT) -> list[str]:
    """Return the digest of a conversation after each of `turns`, which come after `begin`."""
    return chained([turn_digest(turn.role, turn.parts, turn.name) for turn in turns], begin)


def turn_digest(role: str, parts: Sequence[Part], name: str | None = None) -> str:
    """Return the digest of a turn in its compared form; `name` tells participants of one role apart."""
    who = [role, name] if name else role
    text = json.dumps([who, _compared(parts)], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def chained(digests: Sequence[str], begin: str = ROOT) -> list[str]:
    """Return the digest of a conversation after each of its turns; each is over the one before and the turn."""
    links, link = [], begin
    for digest in digests:
        link = hashlib.sha256(f"{link}\x1f{digest}".encode()).hexdigest()
        links.append(link)
    return links


def _compared(parts: Sequence[Part]) -> list[Any]:
    """Return parts without what clients change: neighbouring words joined, thoughts left out."""
    found: list[Any] = []
    for part in parts:
        match part:
            case Reasoning():
                continue
            case Text() | Refusal():
                if found and isinstance(found[-1], list):
                    found[-1].append(part.text)
                elif part.text:
                    found.append([part.text])
            case ToolUse():
                found.append({"call": _id(part.id), "name": part.name, "arguments": _arguments(part.arguments)})
            case ToolResult():
                found.append({"result": _id(part.call_id), "parts": _compared(part.parts)})
            case Hosted():
                found.append(part.item)
            case File(source=None, text=str(words)):  # which another dialect says as a file of the same words
                plain = Data(media_type="text/plain", base64=b64encode(words.encode("utf-8", "surrogatepass")).decode())
                as_file = part.model_copy(update={"text": None, "source": plain})
                found.append(as_file.model_dump(mode="json", exclude={"cache", "detail"}, exclude_none=True))
            case _:
                found.append(part.model_dump(mode="json", exclude={"cache", "detail"}, exclude_none=True))
    return ["".join(one) if isinstance(one, list) else one for one in found]


def _id(text: str) -> str:
    """Return an id as every client gives it back; some strip what is neither letter nor digit."""
    return "".join(c for c in text if c.isalnum())


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return {"unparsed": text}
