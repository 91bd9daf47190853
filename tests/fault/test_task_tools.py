"""Our own loop calls tools of its task beside commands: each once, whoever is killed where, and when a machine is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from gym_bus import boundary
from providers.models.base import ModelAnswer, ModelCall, Target
from schemas.config import ScriptedModel
from schemas.envelope import Envelope
from schemas.environment import BuiltIn, Environment, ToolGrant
from schemas.events import (
    ModelCallRequested,
    RolloutFinished,
    TaskToolCallCompleted,
    TaskToolCallRequested,
    ToolCallCompleted,
)
from schemas.sandboxes import Inline
from schemas.values import Message, ToolCall, Usage
from tests.support.checks import check_log
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, sum_tasks
from tools.task_tools import offered

NOTE: Final = BuiltIn(tool="note")
MODEL: Final = ScriptedModel()
RESTART_AFTER_S: Final = 0.3
ROLLOUTS: Final = 4
NOTED: Final = ["first", "second"]


class NotingModel:
    """Notes twice, the second time beside a command, with a call that is none; then answers."""

    async def target(self, call: ModelCall) -> Target:
        """Return that nobody is called."""
        return Target(None)

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer by the turn."""
        assert [tool.name for tool in call.tools] == ["shell", "note"]
        calls: dict[int, tuple[tuple[str, str], ...]] = {
            1: (("note", '{"text": "first"}'),),
            2: (("shell", '{"command": "echo $((1 + 1))"}'), ("note", '{"text": "second"}'), ("note", "no JSON")),
        }
        asked = calls.get(call.turn, ())
        made = tuple(
            ToolCall(id=f"c{call.turn}{n}", name=name, arguments=arguments) for n, (name, arguments) in enumerate(asked)
        )
        words = None if made else f"<answer>{int(call.task_id.partition('/')[2]) * 8 + 1}</answer>"
        return ModelAnswer(
            Message(role="assistant", content=words, tool_calls=made), "tool_calls" if made else "stop", Usage()
        )

    async def aclose(self) -> None:
        """Close nothing."""


async def _run(target: tuple[str, int] | None) -> tuple[list[Envelope], dict[str, int], int]:
    world = World()
    tasks = [
        task.model_copy(
            update={
                "environment": Environment(tools={"note": NOTE}),
                "input": task.input.model_copy(
                    update={"tools": (offered("note", NOTE),), "grants": (ToolGrant(name="task_tools"),)}
                ),
            }
        )
        for task in sum_tasks(ROLLOUTS)
    ]
    world.tasks = tasks
    fake: Any = NotingModel()
    world.models[MODEL.model_dump_json()] = fake
    struck = 0

    def come_back(host: SimHost) -> None:
        nonlocal struck
        struck += 1
        asyncio.get_running_loop().call_later(RESTART_AFTER_S, lambda: world.start_host(host.host_id, host.kinds))

    kill_at(world, [target] if target else [], come_back)
    try:
        world.start_host("h0")
        await world.request_run("r1", config(model=MODEL, sandbox=Inline()))
        await world.finished("r1", 300)
        await world.quiet(100)
    finally:
        boundary.install(None)
        await world.stop()
    return world.events(), dict(world.hits), struck


@cache
def undisturbed() -> tuple[list[Envelope], dict[str, int], int]:
    return run_virtual(_run(None))


def check(events: list[Envelope]) -> None:
    """Each rollout scored, in whatever attempt; in each attempt each call is asked for once and answered once at most."""
    check_log(events)
    finished = [e for e in events if isinstance(e.data, RolloutFinished) and e.data.retry_at is None]
    assert Counter(e.data.state for e in finished) == {"scored": ROLLOUTS}  # type: ignore[attr-defined]
    assert [e.data.reward for e in finished] == [1.0] * ROLLOUTS  # type: ignore[attr-defined]
    for end in finished:
        own = [e for e in events if (e.rollout_id, e.attempt) == (end.rollout_id, end.attempt)]
        asked = [e for e in own if isinstance(e.data, TaskToolCallRequested)]
        done = [e.data for e in own if isinstance(e.data, TaskToolCallCompleted)]
        assert [(e.actor, e.data.number) for e in asked] == [("harness", 1), ("harness", 2)]  # type: ignore[attr-defined]
        assert [data.request_id for data in done] == [e.event_id for e in asked]
        assert [data.record for data in done] == NOTED


def test_tools_of_a_task_are_called_by_our_own_loop(tmp_path: Path) -> None:
    """Beside commands; the model is told what each said, in the order of its calls, what could not be read included."""
    events, _, _ = undisturbed()
    check(events)
    assert len([e for e in events if isinstance(e.data, ToolCallCompleted)]) == ROLLOUTS
    last = [e.data for e in events if isinstance(e.data, ModelCallRequested) and e.data.turn == 3]
    told = [message.content for message in last[0].new_messages]
    assert told[0].strip() == "2"  # type: ignore[union-attr]
    assert told[1] == "Noted."
    assert "not valid JSON" in (told[2] or "")


NAMES: Final = [name for name in boundary.BOUNDARIES if name.partition(".")[0] in {"harness", "verifier", "sandbox"}]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "sandbox.decided"])
def test_a_call_is_made_once_whoever_is_killed(name: str) -> None:
    hits = undisturbed()[1][name]
    for nth in sorted({1, hits // 3 or 1, hits // 2 or 1, hits}):
        events, _, struck = run_virtual(_run((name, nth)))
        assert struck == 1, "the boundary was not hit"
        check(events)
