"""Which call continued which: found by what was said, turn by turn, in a form that no client's habits change.

Clients re-serialise arguments, swap strings and lists of text, move cache hints, drop thoughts, strip characters from ids. None of
that tells a model anything new, so none of it counts here: a turn is compared by its words, its calls as parsed JSON, its results.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schemas.conversation import Hosted, Part, Reasoning, Refusal, Text, ToolResult, ToolUse, Turn

ROOT: Final = "root"
AMBIGUOUS: Final = "parent_ambiguous"


def turn_digest(role: str, parts: Sequence[Part]) -> str:
    """Return the digest of a turn in its compared form."""
    text = json.dumps([role, _compared(parts)], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
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
                if found and isinstance(found[-1], str):
                    found[-1] += part.text
                elif part.text:
                    found.append(part.text)
            case ToolUse():
                found.append({"call": _id(part.id), "name": part.name, "arguments": _arguments(part.arguments)})
            case ToolResult():
                found.append({"result": _id(part.call_id), "parts": _compared(part.parts)})
            case Hosted():
                found.append(part.item)
            case _:
                found.append(part.model_dump(mode="json", exclude={"cache", "detail"}, exclude_none=True))
    return found


def _id(text: str) -> str:
    """Return an id as every client gives it back; some strip what is neither letter nor digit."""
    return "".join(c for c in text if c.isalnum())


def _arguments(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return {"unparsed": text}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands among the conversation's calls.

    `parent_id` is the call whose whole conversation, answer included, it continues; `known_turns` of its turns are that
    conversation. `digest` is over all of its turns; `turn` numbers what was asked, from 1, and `tries` how often, this time included.
    """

    parent_id: str | None
    known_turns: int
    digest: str
    turn: int
    tries: int
    gaps: tuple[str, ...] = ()


@dataclass
class Lineage:
    """The calls of one conversation so far, by what was said up to the end of each."""

    _answered: dict[str, list[str]] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)
    _links: dict[str, str] = field(default_factory=dict)

    def place(self, turns: Sequence[Turn]) -> Place:
        """Return where a call with these `turns` stands; nothing is guessed: what fits two parents says so."""
        links = chained([turn_digest(turn.role, turn.parts) for turn in turns])
        digest = links[-1] if links else ROOT
        turn, tries = self._turns.get(digest, len(self._turns) + 1), self._asked.get(digest, 0) + 1
        for known in range(len(links), 0, -1):
            if parents := self._answered.get(links[known - 1]):
                gaps = (AMBIGUOUS,) if len(parents) > 1 else ()
                return Place(parents[-1], known, digest, turn, tries, gaps)
        return Place(None, 0, digest, turn, tries)

    def ask(self, call_id: str, digest: str) -> None:
        """Note a call that is being made, with the digest of all its turns."""
        self._turns.setdefault(digest, len(self._turns) + 1)
        self._asked[digest] = self._asked.get(digest, 0) + 1
        self._links[call_id] = digest

    def answer(self, call_id: str, parts: Sequence[Part]) -> None:
        """Note a call's answer: whoever repeats it continues the call."""
        link = chained([turn_digest("assistant", parts)], self._links[call_id])[0]
        self._answered.setdefault(link, []).append(call_id)
