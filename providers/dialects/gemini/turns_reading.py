"""Contents read as turns, in the canonical form of `schemas.conversation`.

A content that holds results of functions is a `tool` turn, and a `user` turn for what else is in it; neighbouring contents of the
model are one turn. A result belongs to the call of its id; one without an id, or with one that no call has, to the first call of its
function that still has no result. Calls that came without an id are given one by their place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.gemini.names import each, inner, keep
from providers.dialects.gemini.open_calls import OpenCalls
from providers.dialects.gemini.parts_reading import Answered, Called, Read, Thought, read_part
from providers.dialects.gemini.thoughts import read_proof
from schemas.conversation import Hosted, Part, Reasoning, Role, Text, ToolResult, ToolUse, Turn

SIGNATURE: Final = "thoughtSignature"
REPEATED: Final = "repeatedResponse"
"""What a result that is left out is called."""


@dataclass(slots=True)
class _Draft:
    """A turn in the making. `proven` are the thoughts that a signature holds, as they were; they count more than those retold.

    `results` are those of a tool turn, by the ids of their calls.
    """

    role: Role
    parts: list[Part] = field(default_factory=list)
    retold: list[str] = field(default_factory=list)
    proven: list[Reasoning] = field(default_factory=list)
    results: dict[str, ToolResult] = field(default_factory=dict)


def read_turns(body: Fields, others: dict[str, Any]) -> tuple[Turn, ...]:
    """Take `systemInstruction` and `contents`; what is unknown in them goes to `others`."""
    reading = _Reading(others)
    if system := inner(body, "systemInstruction"):
        system.take("role")
        reading.add(system, "system", -1)
    for n, content in enumerate(each(body, "contents")):
        reading.add(content, _role(content), n)
    return tuple(_turn(draft) for draft in reading.drafts)


def _role(content: Fields) -> Role:
    match content.text("role") or "user":
        case "user" | "function":
            return "user"
        case "model":
            return "assistant"
        case role:
            raise Unexpressible(content.at("role"), f"want user or model, found {role[:80]!r}")


class _Reading:
    """Contents one after the other."""

    def __init__(self, others: dict[str, Any]) -> None:
        self.drafts: list[_Draft] = []
        self._others = others
        self._open = OpenCalls()

    def add(self, content: Fields, role: Role, number: int) -> None:
        """Take in the content of this number."""
        if not content.has("parts"):
            raise Unexpressible(content.at("parts"), "is missing")
        has_words = False
        for n, fields in enumerate(each(content, "parts")):
            proof = fields.text(SIGNATURE)
            read: Read = read_part(fields, self._others) if fields.rest() or proof is None else Text(text="")
            if isinstance(read, Answered):
                if role != "user" or has_words:
                    raise Unexpressible(fields.path, "a functionResponse stands before all else in a user's content")
                self._answer(read, fields)
                continue
            draft = self._draft(role, is_new=role != "assistant" and not has_words)
            has_words = True
            self._note(draft, read, proof, fields, f"g{number}x{n}")
        keep(content, self._others)

    def _note(self, draft: _Draft, read: Read, proof: str | None, fields: Fields, made_id: str) -> None:
        if proof is not None:
            proven = read_proof(proof)
            draft.proven += proven
            if not proven:  # another provider's, which proves nothing to this one
                self._others[fields.at(SIGNATURE)] = proof
        match read:
            case Thought(text=text):
                if draft.role != "assistant":
                    raise Unexpressible(fields.path, "only the model thinks")
                draft.retold.append(text)
            case Called():
                if draft.role != "assistant":
                    raise Unexpressible(fields.path, "a functionCall stands in a content of the role model")
                draft.parts.append(self._called(read, made_id, fields))
            case Text(text="") if proof is not None:  # it is there to carry its signature
                pass
            case Answered():
                raise Unexpressible(fields.path, "a functionResponse stands before all else in a user's content")
            case _:
                draft.parts.append(read)

    def _called(self, call: Called, made_id: str, fields: Fields) -> ToolUse:
        call_id = call.id or made_id
        if call_id in self._open:
            raise Unexpressible(fields.path, f"two calls have the id {call_id!r}")
        self._open.add(call_id, call.name)
        return ToolUse(id=call_id, name=call.name, arguments=call.arguments)

    def _answer(self, result: Answered, fields: Fields) -> None:
        """Take in a result; one that is given twice, as by a session that goes on, counts once."""
        draft = self._draft("tool")
        if result.id is not None and draft.results.get(result.id) == result.result_of(result.id):
            self._others[fields.at(REPEATED)] = True
            return
        call_id = self._open.close(result.id, result.name)
        if call_id is None:
            raise Unexpressible(fields.path, f"a result of {result.name!r}, of which no call is open")
        draft.results[call_id] = result.result_of(call_id)
        draft.parts.append(draft.results[call_id])

    def _draft(self, role: Role, *, is_new: bool = False) -> _Draft:
        """Return the turn to go on with: a new one, or the last if the same speaker goes on."""
        if is_new or not self.drafts or self.drafts[-1].role != role:
            self.drafts.append(_Draft(role))
        return self.drafts[-1]


def _turn(draft: _Draft) -> Turn:
    thoughts: list[Part] = [*draft.proven]
    if not thoughts and draft.retold:
        thoughts = [Reasoning(texts=("".join(draft.retold),))]
    parts = [*thoughts, *draft.parts]
    if draft.role == "assistant" and not any(isinstance(part, Hosted) for part in parts):
        parts.sort(key=_rank)
    return Turn(role=draft.role, parts=tuple(parts), is_plain=len(parts) == 1 and isinstance(parts[0], Text))


def _rank(part: Part) -> int:
    match part:
        case Reasoning():
            return 0
        case ToolUse():
            return 2
        case _:
            return 1
