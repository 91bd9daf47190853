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
    message = (plain["choices"] or [{}])[0].get("message") or {}
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
        if "function" in call
    ]
    thoughts = [message[name] for name in ("reasoning_content", "reasoning") if isinstance(message.get(name), str)]
    return {"texts": [message["content"]] if message.get("content") else [], "thoughts": thoughts[:1], "calls": calls}


def _of_responses(plain: Json) -> Json:
    items = [item for item in plain["output"] if isinstance(item, dict)]
    texts = [
        part["text"]
        for item in items
        if item.get("type") == "message"
        for part in item.get("content") or ()
        if part.get("type") == "output_text"
    ]
    thoughts = [
        part["text"]
        for item in items
        if item.get("type") == "reasoning"
        for part in (*(item.get("content") or ()), *(item.get("summary") or ()))
    ]
    calls = [
        {"id": item["call_id"], "name": item["name"], "arguments": item["arguments"]}
        for item in items
        if item.get("type") == "function_call"
    ]
    return {"texts": texts, "thoughts": thoughts, "calls": calls}


def _of_messages(plain: Json) -> Json:
    parts = [part for part in plain["content"] if isinstance(part, dict)]
    return {
        "texts": [part["text"] for part in parts if part.get("type") == "text"],
        "thoughts": [part["thinking"] for part in parts if part.get("type") == "thinking"],
        "calls": [
            {"id": part["id"], "name": part["name"], "arguments": part["input"]}
            for part in parts
            if part.get("type") == "tool_use"
        ],
    }


def _counts(usage: Json) -> Json:
    """Return the counts by one name each: Chat says prompt and completion, the others input and output."""
    pairs = {"input_tokens": ("prompt_tokens", "input_tokens"), "output_tokens": ("completion_tokens", "output_tokens")}
    return {name: next((usage[key] for key in keys if key in usage), None) for name, keys in pairs.items()}
