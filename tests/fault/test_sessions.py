"""What a session does with its tools, its limits and its past, whatever the model says and the sandbox does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from providers.models.base import ModelAnswer, ModelCall
from providers.sandboxes.base import BoxLost, ExecResult
from schemas.config import Retries, ScriptedModel, SimpleAgent
from schemas.events import (
    ModelCallCompleted,
    ModelCallRequested,
    RolloutFinished,
    SessionClosed,
    ToolCallRejected,
    ToolCallRequested,
)
from schemas.sandboxes import Inline
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config


def test_bad_arguments_are_told_and_never_executed() -> None:
    """Broken tool arguments go back to the model as text; good ones in the same answer run."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answer(call: ModelCall) -> ModelAnswer:
            if call.turn == 1:
                return calls_tools('{"command": "echo $((1+1))"', '{"command": "echo $((2+2))"}', '{"cmd": "x"}')
            tool_texts = [m.content or "" for m in call.messages if m.role == "tool"]
            assert len(tool_texts) == 3
            return says(f"<answer>{tool_texts[1].strip()}</answer>")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config())
        await world.finished("r1")
        await settled(world)
        events = world.events()
        assert len([e for e in events if isinstance(e.data, ToolCallRejected)]) == 2
        assert len([e for e in events if isinstance(e.data, ToolCallRequested)]) == 1
        closed = next(e.data for e in events if isinstance(e.data, SessionClosed))
        assert closed.evidence.answer == "<answer>4</answer>"

    run_virtual(scenario())


@pytest.mark.parametrize("is_parallel", [True, False])
def test_tool_calls_in_parallel_or_one_after_the_other(is_parallel: bool) -> None:
    """Sequential tool calling asks for the second call only once the first is answered."""

    async def scenario() -> None:
        world = World(tasks=1)
        seen: list[str] = []

        def answer(call: ModelCall) -> ModelAnswer:
            if call.turn == 1:
                return calls_tools('{"command": "echo $((1+1))"}', '{"command": "echo $((2+2))"}')
            seen.extend(m.content or "" for m in call.messages if m.role == "tool")
            return says("done")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(agent=SimpleAgent(parallel_tool_calls=is_parallel)))
        await world.finished("r1")
        await settled(world)
        order = [e.type for e in world.events() if "tool_call" in e.type and "model" not in e.type]
        asked_first = order[:2] == ["tool_call_requested.v1"] * 2
        assert asked_first == is_parallel
        assert [s.strip() for s in seen] == ["2", "4"]

    run_virtual(scenario())


def test_max_steps() -> None:
    """An agent that never answers is stopped after `max_steps` model calls and graded as the model's own end."""

    async def scenario() -> None:
        world = World(tasks=1)
        with_model(world, FakeModel(lambda _: calls_tools('{"command": "echo $((1+1))"}')))
        world.start_host()
        await world.request_run("r1", config(agent=SimpleAgent(max_steps=3)))
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 1
        end = next(e.data for e in world.events() if isinstance(e.data, RolloutFinished))
        assert (end.state, end.reward) == ("model_final", 0.0)
        assert len([e for e in world.events() if isinstance(e.data, ModelCallCompleted)]) == 3

    run_virtual(scenario())


def test_long_sessions_resume_from_their_snapshot() -> None:
    """A session of many turns is taken over from its last snapshot and the tail; no recorded answer is asked for again."""

    async def scenario() -> None:
        world = World(tasks=1, settings=None)
        world.settings = world.settings.model_copy(update={"snapshot_every": 8})

        def answer(call: ModelCall) -> ModelAnswer:
            return (
                says("<answer>1</answer>")
                if call.turn == 40
                else calls_tools(f'{{"command": "echo $(({call.turn}))"}}')
            )

        model = with_model(world, FakeModel(answer))
        model.delay_s = 0.1
        world.start_host("h0", ("collector", "harness", "verifier"))
        world.start_host("h1", ("sandbox",))
        await world.request_run("r1", config(agent=SimpleAgent(max_steps=50)))
        while len(model.calls) < 30:
            await asyncio.sleep(0.05)
        world.hosts["h0"].kill()
        world.start_host("h0", ("collector", "harness", "verifier"))
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 1
        assert [e for e in world.events() if e.type == "snapshot.v1"]
        requested = [e.data.turn for e in world.events() if isinstance(e.data, ModelCallRequested)]
        assert len(requested) <= 41
        last = model.calls[-1]
        assert len([m for m in last.messages if m.role == "tool"]) == 39

    run_virtual(scenario())


def test_session_timeout() -> None:
    """A session that does not end in time is closed, its machine too, and tried again as an infrastructure failure."""

    async def scenario() -> None:
        world = World(tasks=1)
        model = with_model(world, FakeModel(lambda _: says("late")))
        model.delay_s = 1000
        world.start_host()
        await world.request_run("r1", config(agent=SimpleAgent(timeout_s=30), retries=Retries(max_attempts=2)))
        finished = await world.finished("r1")
        await settled(world)
        assert finished.failed == 1
        ends = [e.data for e in world.events() if isinstance(e.data, RolloutFinished)]
        assert [d.failure.kind for d in ends if d.failure] == ["agent_timeout"] * 2

    run_virtual(scenario())


def test_broken_tool_box_is_a_failure_not_an_observation() -> None:
    """A machine that dies under a command ends the attempt with no further model call; the next attempt is scored."""

    async def scenario() -> None:
        world = World(tasks=1)
        original = world.provider_for
        died = 0

        class Dying:
            is_alive = True

            async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
                nonlocal died
                died += 1
                msg = "out of memory, the machine was restarted"
                raise BoxLost(msg)

            async def destroy(self) -> None:
                pass

        class Provider:
            name = "dying"
            capabilities: frozenset[str] = frozenset()

            async def create(self, label: str) -> Any:
                return Dying() if died == 0 else await original(Inline()).create(label)

        world.provider_for = lambda _: Provider()  # type: ignore[method-assign,assignment,return-value]
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(error_rate=0), retries=Retries(backoff_s=0.1)))
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 1
        events = world.events()
        first = [e for e in events if e.attempt == 1 and e.rollout_id == "0-0"]
        assert len([e for e in first if isinstance(e.data, ModelCallRequested)]) == 1
        end = next(e.data for e in first if isinstance(e.data, RolloutFinished))
        assert end.failure is not None
        assert end.failure.kind in {"sandbox_lost", "tool_lost"}
        assert end.reward is None

    run_virtual(scenario())
