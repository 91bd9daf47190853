"""A recorded conversation behind the gateway: found by what was said, answered as it was, its first difference named."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actors.gateway.backends import Backends
from adapters.harnesses.anew import without, written_anew
from gym_bus.local_model import MISSING, weights_path
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from providers.models.backends import Backend
from providers.models.local_backend import LocalBackend
from providers.models.replay_backend import ReplayBackend, Replays
from providers.models.scripted import ScriptedModel
from providers.models.scripted_backend import ScriptedBackend
from schemas.config import LocalModel, ModelConfig, ReplayModel, SimpleAgent
from schemas.config import ScriptedModel as ScriptedConfig
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallFailed, SessionRequested
from schemas.sandboxes import Inline
from schemas.tasks import TaskInput
from schemas.values import Message, Sampling
from tests.support.gateway_with import Front, gateway_with
from tests.support.recording import write

TOOL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
QUESTION = {"role": "user", "content": "What is 2 + 2?"}


def scripted(failure_rate: float = 0.0) -> Backend:
    return ScriptedBackend(ScriptedModel(ScriptedConfig(error_rate=0, failure_rate=failure_rate)), "sum/0", 0, 3)


def replayed(recording: Path, events: list[Envelope], agent: str = "pi_agent", **changes: Any) -> ReplayBackend:
    model, plain = write(recording, events), partial(without, written_anew(agent))
    return Replays(ReplayModel(recording=model.recording, **changes), 3).for_session("s", "sum/0", 0, plain)


def asked_of(model: ModelConfig) -> SessionRequested:
    return SessionRequested(
        task=TaskInput(task_id="sum/0", messages=(Message(role="user", content="What is 2 + 2?"),)),
        repeat=0,
        agent=SimpleAgent(),
        model=model,
        sandbox=Inline(),
        sampling=Sampling(),
    )


async def converse(front: Front, *, streamed: bool, result: str = "4", tools: bool = True) -> list[dict[str, Any]]:
    """Have a conversation of two calls with a tool's result between them; return what the model said in each."""
    messages: list[dict[str, Any]] = [QUESTION]
    said: list[dict[str, Any]] = []
    for turn in range(2):
        body: dict[str, Any] = {"model": "x", "messages": messages, "temperature": 0, "max_tokens": 8}
        answer = await front.post({**body, **({"tools": [TOOL]} if tools else {}), "stream": streamed})
        assert answer.status_code == 200, answer.text
        [*_, done] = front.events(ModelCallCompleted)
        message = done.data.message
        calls = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
        said.append({"role": "assistant", "content": message.content, **({"tool_calls": calls} if calls else {})})
        follows = {"role": "tool", "tool_call_id": calls[0]["id"]} if calls else {"role": "user"}
        messages += [said[turn], {**follows, "content": result}]
    return said


def recorded_facts(front: Front) -> list[Any]:
    """Return all of the answers that does not depend on when they were given."""
    left_out = {"request_id", "duration_s", "first_token_s", "queue_s"}
    return [event.data.model_dump(exclude=left_out) for event in front.events(ModelCallCompleted)]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_is_answered_as_it_was(tmp_path: Path, *, streamed: bool) -> None:
    async with gateway_with(scripted()) as front:
        said = await converse(front, streamed=streamed)
        events, facts = front.events(), recorded_facts(front)
    async with gateway_with(replayed(tmp_path / "run.jsonl", events)) as front:
        assert await converse(front, streamed=not streamed) == said
        assert recorded_facts(front) == facts


async def test_a_failed_try_fails_again_and_the_next_one_answers(tmp_path: Path) -> None:
    async with gateway_with(scripted(failure_rate=1.0)) as front:
        said = await converse(front, streamed=False)
        events = front.events()
        failures = [event.data.failure for event in front.events(ModelCallFailed)]
    async with gateway_with(replayed(tmp_path / "run.jsonl", events)) as front:
        assert await converse(front, streamed=False) == said
        assert [event.data.failure for event in front.events(ModelCallFailed)] == failures
        assert failures


CHUNK = "Chunk ID: {}\nWall time: {} seconds\nProcess exited with code 0\nOutput:\n{}"


async def test_what_a_program_writes_anew_each_time_is_passed_over(tmp_path: Path) -> None:
    """It is found by all else that it is told; a difference beside that is named, and for other programs it is one itself."""
    then, now = CHUNK.format("5bdc24", "0.1", "4"), CHUNK.format("5d78fe", "0.2", "4")
    async with gateway_with(scripted()) as front:
        said = await converse(front, streamed=False, result=then)
        events, facts = front.events(), recorded_facts(front)
    async with gateway_with(replayed(tmp_path / "run.jsonl", events, "codex_agent")) as front:
        assert await converse(front, streamed=False, result=now) == said
        assert recorded_facts(front) == facts
    for agent, result in (("codex_agent", CHUNK.format("5d78fe", "0.2", "5")), ("pi_agent", now)):
        async with gateway_with(replayed(tmp_path / "run.jsonl", events, agent)) as front:
            with pytest.raises(AssertionError, match="message 3"):
                await converse(front, streamed=False, result=result)
            [failed] = front.events(ModelCallFailed)
            is_named = (
                "recorded '[for call1x0] Process exited with code 0\\nOutput:\\n4', now" in failed.data.failure.message
            )
            assert is_named == (agent == "codex_agent"), failed.data.failure.message


async def test_the_first_difference_is_named_and_told_to_the_client(tmp_path: Path) -> None:
    async with gateway_with(scripted()) as front:
        await converse(front, streamed=False)
        events = front.events()
    async with gateway_with(replayed(tmp_path / "run.jsonl", events)) as front:
        with pytest.raises(AssertionError, match="message 3"):
            await converse(front, streamed=False, result="5")
        [failed] = front.events(ModelCallFailed)
        assert failed.data.failure.kind == "replay_diverged"
        assert failed.data.failure.message == (
            "task sum/0, repeat 0: no call of the recording is told this; the nearest is call 2, "
            "message 3 (tool): recorded '[for call1x0] 4', now '[for call1x0] 5'"
        )


async def test_what_another_dialect_says_is_found_too(tmp_path: Path) -> None:
    async with gateway_with(scripted()) as front:
        [first, _] = await converse(front, streamed=False)
        events = front.events()
    call = first["tool_calls"][0]["function"]
    async with gateway_with(replayed(tmp_path / "run.jsonl", events, api="messages")) as front:
        body = {"model": "x", "max_tokens": 8, "messages": [QUESTION]}
        answer = (await front.post(body, "/v1/messages")).json()
        assert answer["content"][0]["name"] == call["name"]
        assert answer["stop_reason"] == "tool_use"


@pytest.mark.skipif(weights_path() is None, reason=MISSING)
@pytest.mark.parametrize("streamed", [False, True])
async def test_recorded_tokens_are_given_again(tmp_path: Path, *, streamed: bool) -> None:
    backend = LocalBackend(LocalModel(context_tokens=512), 8, 1)
    try:
        async with gateway_with(backend) as front:
            said = await converse(front, streamed=False, tools=False)
            events, facts = front.events(), recorded_facts(front)
    finally:
        await backend.aclose()
    assert all(fact["tokens"]["generated"] for fact in facts)
    assert facts[1]["tokens"]["shared"] > 0
    async with gateway_with(replayed(tmp_path / "run.jsonl", events)) as front:
        assert await converse(front, streamed=streamed, tools=False) == said
        again = recorded_facts(front)
    for facts_of_one in (*facts, *again):
        facts_of_one["tokens"].pop("parent_id")
    assert again == facts


def test_what_a_session_names_is_made_once_and_shared(tmp_path: Path) -> None:
    """The local model, and a recording with its counts."""
    backends = Backends(SecretsStore(tmp_path), Redactor(), 8)
    ones = [backends.backend_for(asked_of(LocalModel(max_tries=9)), session) for session in ("a", "b")]
    assert ones[0] is ones[1]
    assert isinstance(ones[0], LocalBackend)
    assert ones[0].max_tries == 3
    both = [backends.backend_for(asked_of(ReplayModel(recording="/run.jsonl")), session) for session in ("a", "b")]
    assert isinstance(both[0], ReplayBackend)
    assert isinstance(both[1], ReplayBackend)
    assert both[0]._replays is both[1]._replays
