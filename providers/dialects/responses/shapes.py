"""The shapes of items and of their content, as they stand in requests, in answers and in streams alike.

An item in an answer has an id and a status; what a client sends back may do without.
"""

from __future__ import annotations

from typing import Any

from schemas.conversation import Reasoning, Refusal, Text, TokenLogprob, ToolUse


def text_content(part: Text) -> dict[str, Any]:
    """Return words of an assistant; of their citations only those can be told that have this dialect's shape."""
    annotations = [citation for citation in part.citations if is_annotation(citation)]
    return {"type": "output_text", "text": part.text, "annotations": annotations}


def is_annotation(citation: dict[str, Any]) -> bool:
    """Return whether a citation may be this dialect's: Chat Completions nests it, in Messages it is a location."""
    type_ = citation.get("type")
    return isinstance(type_, str) and type_ not in citation and not type_.endswith("_location")


def refusal_content(part: Refusal) -> dict[str, Any]:
    """Return an assistant's words for not doing it."""
    return {"type": "refusal", "refusal": part.text}


def message_item(role: str, content: Any, id_: str | None = None, status: str | None = None) -> dict[str, Any]:
    """Return a message; `content` is a string or a list."""
    return _known(id=id_) | {"type": "message", "role": role, "content": content} | _known(status=status)


def reasoning_item(part: Reasoning, id_: str | None) -> dict[str, Any]:
    """Return a thought with its texts, its summaries and what is encrypted."""
    item = _known(id=id_) | {"type": "reasoning", "summary": [summary_content(text) for text in part.summaries]}
    if part.texts:
        item["content"] = [thought_content(text) for text in part.texts]
    return item | _known(encrypted_content=part.encrypted)


def summary_content(text: str) -> dict[str, Any]:
    """Return one summary of a thought."""
    return {"type": "summary_text", "text": text}


def thought_content(text: str) -> dict[str, Any]:
    """Return one text of a thought."""
    return {"type": "reasoning_text", "text": text}


def call_item(part: ToolUse, id_: str | None, status: str | None = None) -> dict[str, Any]:
    """Return a call with its arguments as the model wrote them."""
    type_, written_as = ("custom_tool_call", "input") if part.kind == "custom" else ("function_call", "arguments")
    item = _known(id=id_) | {"type": type_, "call_id": part.id, "name": part.name, written_as: part.arguments}
    return item | _known(namespace=part.namespace, status=status)


def written_logprobs(logprobs: tuple[TokenLogprob, ...], *, has_bytes: bool) -> list[dict[str, Any]]:
    """Return log probabilities; `bytes`, which whole answers have and deltas have not, are those of the token's own text."""
    return [
        _token(each.token, each.logprob, has_bytes=has_bytes)
        | {"top_logprobs": [_token(token, logprob, has_bytes=has_bytes) for token, logprob in each.top]}
        for each in logprobs
    ]


def _token(token: str, logprob: float, *, has_bytes: bool) -> dict[str, Any]:
    bytes_ = {"bytes": list(token.encode("utf-8", "surrogatepass"))} if has_bytes else {}
    return {"token": token, "logprob": logprob} | bytes_


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
