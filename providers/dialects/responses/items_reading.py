"""Reads the items of a conversation, those that a client sends back and those that a model answers with alike.

Of the types of items only messages, thoughts, and the calls and results of functions and custom tools are taken apart. Any
other, and one whose content is of a type not known here, is kept whole as `Hosted`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.responses.content_reading import GIVEN, SAID, read_content
from providers.dialects.responses.names import NAME, Notes, note_rest
from schemas.conversation import Hosted, Part, Reasoning, Role, Text, ToolResult, ToolUse


@dataclass(frozen=True, slots=True)
class Item:
    """Who says what by one item; `is_plain` if its content is a bare string."""

    role: Role
    parts: tuple[Part, ...]
    is_plain: bool = False


def read_item(raw: dict[str, Any], path: str, notes: Notes) -> Item:
    """Return what one item says; raises `Unexpressible` for what is none."""
    fields = Fields(raw, path)
    type_ = fields.text("type") or ("message" if fields.has("role") else "item_reference" if fields.has("id") else None)
    if type_ is None:
        raise Unexpressible(fields.at("type"), "is missing")
    found: Notes = {}
    reader = READERS.get(type_)
    item = reader(fields, found) if reader else None
    if item is None:
        return Item(_keeper(type_, raw), (Hosted(dialect=NAME, item=raw),))
    note_rest(fields, found)
    notes.update(found)
    return item


ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
OTHER_KEEPERS: Final[dict[str, Role]] = {"additional_tools": "developer", "mcp_approval_response": "user"}


def _keeper(type_: str, raw: dict[str, Any]) -> Role:
    """Return whose turn an item that is kept whole belongs to."""
    role = raw.get("role")
    if isinstance(role, str) and role in ROLES:
        return ROLES[role]
    if type_.endswith("_output"):
        return "tool"
    return OTHER_KEEPERS.get(type_, "assistant")


def _message(fields: Fields, notes: Notes) -> Item | None:
    word = fields.needed_text("role")
    role = ROLES.get(word)
    if role is None:
        raise Unexpressible(fields.at("role"), f"want {', '.join(ROLES)}, found {word!r}")
    content = fields.take("content")
    if isinstance(content, str):
        return Item(role, (Text(text=content),), is_plain=True)
    if not isinstance(content, list):
        raise Unexpressible(fields.at("content"), "want a string or a list")
    parts = read_content(content, fields.at("content"), SAID, notes)
    return None if parts is None else Item(role, parts)


def _reasoning(fields: Fields, notes: Notes) -> Item | None:
    texts = read_content(fields.list("content") or [], fields.at("content"), THOUGHTS, notes)
    summaries = read_content(fields.list("summary") or [], fields.at("summary"), SUMMARIES, notes)
    if texts is None or summaries is None:
        return None
    encrypted, id_ = fields.text("encrypted_content"), fields.text("id")
    return Item("assistant", (Reasoning(texts=texts, summaries=summaries, encrypted=encrypted, id=id_),))


def _words(fields: Fields, _notes: Notes) -> str:
    return fields.needed_text("text")


def _function_call(fields: Fields, _notes: Notes) -> Item:
    call = ToolUse(
        id=fields.needed_text("call_id"),
        name=fields.needed_text("name"),
        arguments=fields.needed_text("arguments"),
        namespace=fields.text("namespace"),
        item_id=fields.text("id"),
    )
    return Item("assistant", (call,))


def _custom_tool_call(fields: Fields, _notes: Notes) -> Item:
    call = ToolUse(
        id=fields.needed_text("call_id"),
        name=fields.needed_text("name"),
        arguments=fields.needed_text("input"),
        kind="custom",
        namespace=fields.text("namespace"),
        item_id=fields.text("id"),
    )
    return Item("assistant", (call,))


def _function_call_output(fields: Fields, notes: Notes) -> Item | None:
    return _result(fields, notes)


def _custom_tool_call_output(fields: Fields, notes: Notes) -> Item | None:
    item = _result(fields, notes)
    return item and Item("tool", tuple(part.model_copy(update={"kind": "custom"}) for part in item.parts))


def _result(fields: Fields, notes: Notes) -> Item | None:
    call_id, output = fields.needed_text("call_id"), fields.take("output")
    for name in ("name", "namespace"):  # the call, which `call_id` names, has them
        fields.take(name)
    if isinstance(output, str):
        return Item("tool", (ToolResult(call_id=call_id, parts=(Text(text=output),)),))
    if not isinstance(output, list):
        raise Unexpressible(fields.at("output"), "want a string or a list")
    parts = read_content(output, fields.at("output"), GIVEN, notes)
    return None if parts is None else Item("tool", (ToolResult(call_id=call_id, parts=parts, is_plain=False),))


THOUGHTS: Final = {"reasoning_text": _words, "text": _words}
SUMMARIES: Final = {"summary_text": _words}
READERS: Final[dict[str, Callable[[Fields, Notes], Item | None]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "custom_tool_call": _custom_tool_call,
    "function_call_output": _function_call_output,
    "custom_tool_call_output": _custom_tool_call_output,
}
