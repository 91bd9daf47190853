"""A model's reply as a client's library returns it, or as the JSON that it is, in words that are the same for all dialects."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


class NoReply(ValueError):
    """What was given is no model's reply that is known here."""


def told_reply(response: Any) -> Json:
    """Return what is told of a reply of Chat Completions, Responses or Messages; raises `NoReply`.

    `response` is what the library of OpenAI or Anthropic returns, or a dictionary. The result has `reply` (its id), `texts`,
    `thoughts`, `calls` (`id`, `name`, `arguments`) and the counts of tokens that it says.
    """
    plain = response.model_dump(mode="json") if hasattr(response, "model_dump") else response
    if not isinstance(plain, dict):
        raise NoReply(f"a {type(response).__name__} is no reply of a model: want what the client's library returned")
    for name, understood in (("choices", _of_chat), ("output", _of_responses), ("content", _of_messages)):
        if isinstance(plain.get(name), list):
            usage = plain.get("usage")
            return {"reply": plain.get("id"), **understood(plain), **_counts(usage if isinstance(usage, dict) else {})}
    raise NoReply("it is no reply of Chat Completions (`choices`), Responses (`output`) or Messages (`content`)")


def _of_chat(plain: Json) -> Json:
    (message,) = _objects([choice.get("message") for choice in _objects(plain["choices"])[:1]]) or [{}]
    calls = [
        {"id": call.get("id"), "name": wanted.get("name"), "arguments": wanted.get(what)}
        for call in _objects(message.get("tool_calls"))
        for kind, what in (("function", "arguments"), ("custom", "input"))
        for wanted in _objects([call.get(kind)])
    ]
    thoughts = _words(message.get("reasoning_content")) or _words(message.get("reasoning"))
    return {
        "texts": _words(message.get("content")) + _words(message.get("refusal")),
        "thoughts": thoughts,
        "calls": calls,
    }


def _of_responses(plain: Json) -> Json:
    texts, thoughts, calls = [], [], []
    for item in _objects(plain["output"]):
        kind = item.get("type")
        if kind == "message":
            texts += _words(item.get("content"))
        elif kind == "reasoning":
            thoughts += _words(item.get("content")) + _words(item.get("summary"))
        elif kind in {"function_call", "custom_tool_call"}:
            arguments = item.get("arguments" if kind == "function_call" else "input")
            calls.append({"id": item.get("call_id"), "name": item.get("name"), "arguments": arguments})
    return {"texts": texts, "thoughts": thoughts, "calls": calls}


def _of_messages(plain: Json) -> Json:
    parts = _objects(plain["content"])
    return {
        "texts": [words for part in parts if part.get("type") == "text" for words in _words(part.get("text"))],
        "thoughts": [
            words for part in parts if part.get("type") == "thinking" for words in _words(part.get("thinking"))
        ],
        "calls": [
            {"id": part.get("id"), "name": part.get("name"), "arguments": part.get("input")}
            for part in parts
            if part.get("type") == "tool_use"
        ],
    }


def _objects(values: Any) -> list[Json]:
    """Return those of a list that are objects."""
    return [one for one in values if isinstance(one, dict)] if isinstance(values, (list, tuple)) else []


def _words(content: Any) -> list[str]:
    """Return what is said: a text, or the texts of a list of parts. What is refused is said, too."""
    if isinstance(content, str):
        return [content] if content else []
    said = (part.get("text") or part.get("refusal") for part in _objects(content))
    return [words for words in said if isinstance(words, str)]


def _counts(usage: Json) -> Json:
    """Return the counts by one name each: Chat says prompt and completion, the others input and output."""
    pairs = {"input_tokens": ("prompt_tokens", "input_tokens"), "output_tokens": ("completion_tokens", "output_tokens")}
    return {name: next((usage[key] for key in keys if key in usage), None) for name, keys in pairs.items()}
