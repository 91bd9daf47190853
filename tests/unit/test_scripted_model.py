"""The stand-in decides by what is asked, and by nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from providers.models import ModelAnswer, ModelCall, ModelError, make_model
from schemas.config import ScriptedModel
from schemas.values import Message, Sampling
from tools import SHELL, BadArguments, parse_call

QUESTION = Message(role="user", content="What is 12 * 3?")


def call(
    *messages: Message, task_id: str = "t/1", turn: int = 1, tries: int = 1, repeat: int = 0, has_tools: bool = True
) -> ModelCall:
    return ModelCall(
        call_id=f"c{turn}-{tries}",
        task_id=task_id,
        repeat=repeat,
        turn=turn,
        tries=tries,
        messages=messages or (QUESTION,),
        tools=(SHELL,) if has_tools else (),
        sampling=Sampling(),
    )


async def ask(config: ScriptedModel, asked: ModelCall) -> ModelAnswer:
    model = make_model(config, None, 1)
    try:
        return await model.complete(asked)
    finally:
        await model.aclose()


def tool(content: str) -> Message:
    return Message(role="tool", content=content, tool_call_id="call1x0")


async def test_it_asks_the_shell_and_then_answers() -> None:
    config = ScriptedModel(error_rate=0)
    first = await ask(config, call())
    assert first.stop_reason == "tool_calls"
    (tool_call,) = first.message.tool_calls
    assert (tool_call.id, parse_call(tool_call, [SHELL])) == ("call1x0", "echo $((12 * 3))")
    second = await ask(config, call(QUESTION, first.message, tool("36\n"), turn=2))
    assert second.stop_reason == "stop"
    assert (second.message.content or "").endswith("<answer>36</answer>")
    assert second.usage.input_tokens > first.usage.input_tokens > 0


@pytest.mark.parametrize("content", ["sh: not found\n", "", "exit code 1"])
async def test_it_works_the_result_out_itself_if_the_tool_fails(content: str) -> None:
    config = ScriptedModel(error_rate=0)
    first = await ask(config, call())
    second = await ask(config, call(QUESTION, first.message, tool(content), turn=2))
    assert (second.message.content or "").endswith("<answer>36</answer>")


async def test_without_tools_it_answers_at_once() -> None:
    answer = await ask(ScriptedModel(error_rate=0), call(has_tools=False))
    assert (answer.message.content or "").endswith("<answer>36</answer>")


async def test_without_an_expression_it_says_that_it_cannot() -> None:
    answer = await ask(ScriptedModel(error_rate=0), call(Message(role="user", content="Name a colour.")))
    assert "cannot" in (answer.message.content or "")
    assert not answer.message.tool_calls


async def test_malformed_arguments_come_once() -> None:
    config = ScriptedModel(malformed_rate=1, error_rate=0)
    first = await ask(config, call())
    rejected = parse_call(first.message.tool_calls[0], [SHELL])
    assert isinstance(rejected, BadArguments)
    second = await ask(config, call(QUESTION, first.message, tool(rejected.message), turn=2))
    assert parse_call(second.message.tool_calls[0], [SHELL]) == "echo $((12 * 3))"
    assert second.message.tool_calls[0].id == "call2x0"
    history = (QUESTION, first.message, tool(rejected.message), second.message, tool("36"))
    third = await ask(config, call(*history, turn=3))
    assert (third.message.content or "").endswith("<answer>36</answer>")


async def test_a_failing_turn_succeeds_at_the_second_try() -> None:
    config = ScriptedModel(failure_rate=1)
    with pytest.raises(ModelError) as caught:
        await ask(config, call())
    assert not caught.value.failure.terminal
    assert (await ask(config, call(tries=2))).message.tool_calls


async def test_rates_are_met_and_answers_repeat() -> None:
    """The same seed gives the same answers whatever the try and the process; another seed gives others."""
    config = ScriptedModel(error_rate=0.2)

    async def wrong(config: ScriptedModel, tries: int) -> list[str]:
        found = []
        for task in range(500):
            answer = await ask(config, call(task_id=f"t/{task}", tries=tries, has_tools=False))
            if "<answer>36<" not in (answer.message.content or ""):
                assert "<answer>37<" in (answer.message.content or "")
                found.append(f"t/{task}")
        return found

    first = await wrong(config, tries=1)
    assert 60 < len(first) < 140
    assert await wrong(config, tries=2) == first
    assert await wrong(config.model_copy(update={"seed": 1}), tries=1) != first
    assert first[:3] == ["t/5", "t/7", "t/27"], "the hash must never change: stored runs are compared by it"


async def test_latency_is_bounded_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        if seconds > 0.5:  # what else of this process sleeps is short
            slept.append(seconds)

    monkeypatch.setattr("asyncio.sleep", sleep)
    config = ScriptedModel(latency_s=2, latency_spread=0.5)
    await ask(config, call())
    await ask(config, call(tries=2))
    await ask(config, call(task_id="t/2"))
    assert len(slept) == 3
    assert slept[0] == slept[1] != slept[2]
    assert all(1 <= seconds <= 3 for seconds in slept)
    with pytest.raises(ModelError) as caught:
        await ask(config.model_copy(update={"timeout_s": 0.5}), call())
    assert caught.value.failure.kind == "transport_timeout"


async def test_each_try_is_in_the_ledger(tmp_path: Path) -> None:
    await ask(ScriptedModel(ledger_path=str(tmp_path / "ledger")), call(tries=3, repeat=2))
    line = json.loads((tmp_path / "ledger").read_text())
    assert line == {"kind": "model", "key": "c1-3", "task_id": "t/1", "repeat": 2, "turn": 1, "tries": 3}
