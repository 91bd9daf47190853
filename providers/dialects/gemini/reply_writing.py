"""A whole answer, written for a client."""

from __future__ import annotations

from typing import Any

from providers.dialects.cutting import without_cut_call
from providers.dialects.gemini.endings import write_logprobs, write_stop, write_usage
from providers.dialects.gemini.parts_writing import BETWEEN_THOUGHTS, no_place, shows_thoughts, write_call
from providers.dialects.gemini.thoughts import write_proof
from schemas.conversation import Reasoning, Refusal, Reply, Request, Text, ToolUse


def write_reply(reply: Reply, request: Request) -> dict[str, Any]:
    """Return the body; raises `Unexpressible` for what no answer can say. Thoughts are told to a client that asks for them."""
    candidate: dict[str, Any] = {
        "content": {"role": "model", "parts": _parts(reply, is_thought_told=shows_thoughts(request))},
        "finishReason": write_stop(reply.stop_reason),
        "index": 0,
        **write_logprobs(reply.logprobs or ()),
    }
    head = {"modelVersion": reply.model, "responseId": reply.id}
    return {"candidates": [candidate], **write_usage(reply.usage), **head}


def _parts(reply: Reply, *, is_thought_told: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    unproven: list[Reasoning] = []
    for n, part in without_cut_call(reply.parts, reply.stop_reason):
        match part:
            case Reasoning():
                unproven.append(part)
                if is_thought_told and (told := BETWEEN_THOUGHTS.join(part.texts or part.summaries)):
                    parts.append({"text": told, "thought": True})
                continue
            case Text() | Refusal():
                written: dict[str, Any] = {"text": part.text}
            case ToolUse():
                written = write_call(part, f"parts.{n}")
            case _:
                raise no_place(part, n)
        parts.append({**written, **_proof(unproven)})
        unproven = []
    return [*parts, {"text": "", **_proof(unproven)}] if unproven else parts


def _proof(thoughts: list[Reasoning]) -> dict[str, str]:
    return {"thoughtSignature": write_proof(thoughts)} if thoughts else {}
