"""The vendors' SDKs for Node, with tools, streamed and not, from every client's dialect to every backend's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from providers.dialects.catalog import DIALECTS
from schemas.conversation import DialectName, Reply, Text, TokenUsage, ToolUse
from schemas.events import ModelCallCompleted, ModelCallRequested
from tests.support.gateway_place import gateway_place
from tests.support.node import run_contract

BACKENDS: list[DialectName] = ["chat", "responses", "messages"]
USAGE = TokenUsage(input_tokens=12, output_tokens=5, cached_tokens=2)
STOPS = {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"}


def answers(backend: DialectName) -> Any:
    """Return a model that calls a tool, and answers once it has the result; each call's id is new."""
    count = 0

    def answer(body: dict[str, Any]) -> Reply:
        nonlocal count
        count += 1
        turns = DIALECTS[backend].read_request(body).turns
        is_second = any(turn.role == "tool" for turn in turns)
        call = ToolUse(id=f"call{count}", name="shell", arguments='{"command": "ls -l"}')
        parts = (Text(text="Two files."),) if is_second else (Text(text="I look. "), call)
        return Reply(
            dialect=backend, id=f"reply{count}", model="up", parts=parts,
            stop_reason="stop" if is_second else "tool_calls", usage=USAGE,
        )  # fmt: skip

    return answer


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_loop_with_a_tool(backend: DialectName) -> None:
    """Words, call, arguments, the answer after it, usage and why it stopped; a wrong token is the SDK's own error."""
    async with gateway_place(backend) as place:
        place.upstream.answers = [answers(backend)]
        results = await run_contract(place.url, place.token)
        for client in BACKENDS:
            for how in ("whole", "streamed"):
                found = results[f"{client}/{how}"]
                assert json.loads(found.pop("arguments")) == {"command": "ls -l"}
                assert found == {
                    "said": "I look. ", "name": "shell", "stop": STOPS[client], "answer": "Two files.", "input": 12, "output": 5,
                }  # fmt: skip
            refused = results[f"{client}/refused"]
            assert (refused["status"], refused["type"]) == (401, "AuthenticationError")
        asked, answered = place.events(ModelCallRequested), place.events(ModelCallCompleted)
        assert len(asked) == len(answered) == 12
        continued = [e for e in asked if isinstance(e.data, ModelCallRequested) and e.data.parent_id]
        assert len(continued) == 6, "each loop's second call continues its first"
