"""What an assistant said, read from a message of a request or of an answer: thoughts, words and calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.chat.parts import is_annotation, read_cache, read_part
from providers.dialects.chat.unknown import Unknown, needed_fields
from providers.dialects.fields import Fields, where
from schemas.conversation import Part, Reasoning, Refusal, Text, ToolUse

OLD_CALL: Final = "is the older way of calling a tool: use tool_calls"
# Under which name a call of each kind lies, and what its arguments are called in there.
ARGUMENTS: Final = {"function": "arguments", "custom": "input"}


@dataclass
class Said:
    """One assistant's message; `is_plain` if the words were a bare string, and be it an empty one."""

    thoughts: list[Reasoning] = field(default_factory=list)
    words: list[Part] = field(default_factory=list)
    calls: list[ToolUse] = field(default_factory=list)
    is_plain: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return all of it: thoughts before words before calls."""
        return (*self.thoughts, *self.words, *self.calls)


def read_assistant(fields: Fields, unknown: Unknown) -> Said:
    """Take what an assistant said out of its message."""
    if fields.has("function_call"):
        raise Unexpressible(fields.at("function_call"), OLD_CALL)
    words, is_plain = read_content(fields, unknown, is_needed=False)
    refusal = fields.text("refusal")
    if refusal:
        words.append(Refusal(text=refusal))
    _read_annotations(fields, unknown, words)
    calls = [_read_call(call, n, unknown) for n, call in enumerate(fields.each("tool_calls"))]
    return Said(_read_thoughts(fields, unknown), words, calls, is_plain)


def read_content(fields: Fields, unknown: Unknown, *, is_needed: bool) -> tuple[list[Part], bool]:
    """Take `content`: its parts, and whether it was a bare string; an empty string is no part."""
    value = fields.take("content")
    path = fields.at("content")
    match value:
        case None if is_needed:
            raise Unexpressible(path, "is missing")
        case None:
            return [], False
        case "":
            return [], True
        case str():
            return [Text(text=value, cache=read_cache(fields, unknown))], True
        case list():
            return [read_part(part, where(path, n), unknown) for n, part in enumerate(value)], False
        case _:
            raise Unexpressible(path, "want a string or a list of parts")


def _read_thoughts(fields: Fields, unknown: Unknown) -> list[Reasoning]:
    """Take `reasoning_content` and `reasoning`, two names of one thing; what the second says besides is unknown."""
    thought = fields.text("reasoning_content")
    other = fields.take("reasoning")
    if not thought and isinstance(other, str):
        thought = other
    elif other and other != thought:
        unknown.keep_value(fields, "reasoning", other)
    return [Reasoning(texts=(thought,))] if thought else []


def _read_annotations(fields: Fields, unknown: Unknown, words: list[Part]) -> None:
    """Take `annotations`: where the words come from, if it is clear which words."""
    annotations: list[Any] = fields.list("annotations") or []
    if not annotations:
        return
    places = [n for n, part in enumerate(words) if isinstance(part, Text)]
    is_known = all(isinstance(one, dict) and is_annotation(one) for one in annotations)
    if len(places) == 1 and is_known:
        words[places[0]] = words[places[0]].model_copy(update={"citations": tuple(annotations)})
    else:
        unknown.keep_value(fields, "annotations", annotations)


def _read_call(call: Fields, place: int, unknown: Unknown) -> ToolUse:
    kind = call.text("type") or ("custom" if call.has("custom") else "function")
    if kind not in ("function", "custom"):
        raise Unexpressible(call.at("type"), f"want function or custom, found {kind!r}")
    inner = needed_fields(call, kind)
    index = call.take("index")  # left in by clients that put streamed answers together
    if index is not None and index != place:
        unknown.keep_value(call, "index", index)
    read = ToolUse(
        id=call.needed_text("id"),
        name=inner.needed_text("name"),
        arguments=inner.needed_text(ARGUMENTS[kind]),
        kind="custom" if kind == "custom" else "function",
        cache=read_cache(call, unknown),
    )
    unknown.keep(inner)
    unknown.keep(call)
    return read


def write_call(call: ToolUse, path: str) -> dict[str, Any]:
    """Return one entry of `tool_calls`, its arguments as they were written."""
    if call.namespace is not None:
        reason = f"the namespace {call.namespace!r} of a tool cannot be told apart from its name here"
        raise Unexpressible(f"{path}.namespace", reason)
    inner = {"name": call.name, ARGUMENTS[call.kind]: call.arguments}
    return {"id": call.id, "type": call.kind, call.kind: inner}
