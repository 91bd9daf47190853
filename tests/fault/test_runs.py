"""What a run does when things go wrong outside: failing models, frozen hosts, cancel, pause, poison, a full store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from actors.collector.room import ROLLOUT_BYTES, Room
from gym_bus.memory_bus import MemoryBus
from providers.models.base import ModelAnswer, ModelCall, ModelError
from providers.sandboxes.base import BoxLost, ExecResult
from schemas.config import Inline, Retries, ScriptedModel, SimpleAgent
from schemas.events import (
    Claimed,
    ModelCallCompleted,
    ModelCallFailed,
    ModelCallRequested,
    RequestParked,
    RolloutFinished,
    RunCancelRequested,
    RunPaused,
    RunResumed,
    RunResumeRequested,
    SessionClosed,
    ToolCallRejected,
    ToolCallRequested,
)
from schemas.values import Failure, Message, ToolCall, Usage
from tests.support.checks import check_ledger, check_log, final_table
from tests.support.invariants import check_invariants
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config, read_ledger


class FakeModel:
    """A model whose answers a test writes: a function of the call."""

    def __init__(self, answer: Callable[[ModelCall], ModelAnswer]) -> None:
        self.answer = answer
        self.calls: list[ModelCall] = []
        self.delay_s = 0.0

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer."""
        self.calls.append(call)
        await asyncio.sleep(self.delay_s)
        return self.answer(call)

    async def aclose(self) -> None:
        """Nothing to give back."""


def says(text: str) -> ModelAnswer:
    """Return a final answer."""
    return ModelAnswer(Message(role="assistant", content=text), "stop", Usage())


def calls_tools(*arguments: str) -> ModelAnswer:
    """Return an answer that calls the shell."""
    calls = tuple(ToolCall(id=f"c{i}", name="shell", arguments=a) for i, a in enumerate(arguments))
    return ModelAnswer(Message(role="assistant", content=None, tool_calls=calls), "tool_calls", Usage())


def fails(kind: str, *, terminal: bool = False) -> ModelError:
    """Return a failure to raise."""
    return ModelError(Failure(kind=kind, message=f"the model says {kind}", stage="model", terminal=terminal))  # type: ignore[arg-type]


def with_model(world: World, model: FakeModel) -> FakeModel:
    """Make every configuration use `model`."""
    world.model_for = lambda _: model  # type: ignore[method-assign]
    return model


async def settled(world: World) -> None:
    """Wait until nothing is left to do, and check the log, with the SQL invariants too."""
    await world.quiet(120)
    check_log(world.events())
    check_invariants(world)
    await world.stop()


def test_model_down_for_a_while() -> None:
    """A model that fails for 15 s costs waits, no rollout and no reward."""

    async def scenario() -> None:
        world = World(tasks=6)
        loop = asyncio.get_running_loop()

        def answer(call: ModelCall) -> ModelAnswer:
            if loop.time() < 1015:
                raise fails("provider_unavailable")
            return says("<answer>1</answer>")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config())
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.scored, finished.failed, finished.missing) == (6, 0, 0)
        waits = [e.data.retry_in_s for e in world.events() if isinstance(e.data, ModelCallFailed)]
        assert len(waits) > 6
        assert all(w and w > 0 for w in waits)

    run_virtual(scenario())


def test_attempts_are_capped() -> None:
    """A rollout whose machine keeps failing is tried three times, later each time, and ends failed without a reward."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answer(call: ModelCall) -> ModelAnswer:
            raise fails("provider_unavailable")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(max_tries=2), retries=Retries(backoff_s=5)))
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.scored, finished.failed) == (0, 1)
        ends = [e for e in world.events() if isinstance(e.data, RolloutFinished)]
        assert [e.attempt for e in ends] == [1, 2, 3]
        assert [e.data.state for e in ends] == ["retryable", "retryable", "exhausted"]
        assert all(e.data.reward is None for e in ends)
        gaps = [(b.recorded_at - a.recorded_at).total_seconds() for a, b in pairwise(ends)]
        assert gaps[0] > 5
        assert gaps[1] > 10

    run_virtual(scenario())


def test_the_cap_survives_restarts() -> None:
    """Attempts are counted in the log: a host that comes back does not start counting anew."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answer(call: ModelCall) -> ModelAnswer:
            raise fails("provider_unavailable")

        model = with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(model=ScriptedModel(max_tries=1), retries=Retries(backoff_s=20)))
        while not any(isinstance(e.data, RolloutFinished) for e in world.events()):
            await asyncio.sleep(0.2)
        world.hosts["h0"].kill()
        await asyncio.sleep(1)
        world.start_host()
        finished = await world.finished("r1")
        await settled(world)
        assert finished.failed == 1
        assert len(model.calls) == 3

    run_virtual(scenario())


def test_refused_key_pauses_the_run_and_resume_completes_it() -> None:
    """A refused key stops the run instead of failing its rollouts; resumed with a good key it completes."""

    async def scenario() -> None:
        world = World(tasks=20)
        is_good = False

        def answer(call: ModelCall) -> ModelAnswer:
            if not is_good:
                raise fails("provider_auth", terminal=True)
            return says("<answer>1</answer>")

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=4))
        while not any(isinstance(e.data, RunPaused) for e in world.events()):
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        paused = [e for e in world.events() if isinstance(e.data, RunPaused)]
        assert len(paused) == 1
        assert "provider_auth" in paused[0].data.reason
        assert len({e.rollout_id for e in world.events() if isinstance(e.data, RolloutFinished)}) <= 5
        is_good = True
        await world.control("r1", RunResumeRequested(config_digest="digest"), "1")
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.planned, finished.scored) == (20, 20)

    run_virtual(scenario())


def test_resume_under_another_configuration_is_refused() -> None:
    """A resume that names another configuration changes nothing and is answered."""

    async def scenario() -> None:
        world = World(tasks=2)

        def answer(call: ModelCall) -> ModelAnswer:
            raise fails("provider_auth", terminal=True)

        with_model(world, FakeModel(answer))
        world.start_host()
        await world.request_run("r1", config())
        while not any(isinstance(e.data, RunPaused) for e in world.events()):
            await asyncio.sleep(0.2)
        await world.control("r1", RunResumeRequested(config_digest="other"), "1")
        await asyncio.sleep(10)
        parked = [e.data for e in world.events() if isinstance(e.data, RequestParked)]
        assert len(parked) == 1
        assert "digest" in parked[0].failure.message
        assert not [e for e in world.events() if isinstance(e.data, RunResumed)]
        await world.stop()

    run_virtual(scenario())


@pytest.mark.parametrize("hosts", [1, 2])
def test_cancel(hosts: int) -> None:
    """A cancelled run winds up: open model calls are stated, sessions end, the rest is missing, nothing is scored twice."""

    async def scenario() -> None:
        world = World(tasks=30)
        model = with_model(world, FakeModel(lambda _: says("<answer>1</answer>")))
        model.delay_s = 3.0
        for number in range(hosts):
            world.start_host(f"h{number}")
        await world.request_run("r1", config(num_samples_in_parallel=5))
        await asyncio.sleep(8)
        await world.control("r1", RunCancelRequested(reason="enough"), "1")
        cancelled_at = asyncio.get_running_loop().time()
        finished = await world.finished("r1")
        assert asyncio.get_running_loop().time() - cancelled_at < 10
        await settled(world)
        assert finished.state == "cancelled"
        assert finished.planned == 30 == finished.scored + finished.failed + finished.masked + finished.missing
        assert finished.missing > 5

    run_virtual(scenario())


def test_cancel_of_a_finished_run_is_answered() -> None:
    """Cancelling what is over is stated as such and leaves no request behind."""

    async def scenario() -> None:
        world = World(tasks=1)
        world.start_host()
        await world.request_run("r1", config())
        await world.finished("r1")
        await world.control("r1", RunCancelRequested(reason="late"), "1")
        await settled(world)
        assert [e.data.failure.message for e in world.events() if isinstance(e.data, RequestParked)]

    run_virtual(scenario())


def test_zombie_is_fenced(tmp_path: Path) -> None:
    """A host that was frozen past its lease and comes back finds its rollouts taken over; its late events are refused."""

    async def scenario() -> None:
        ledger = tmp_path / "ledger"
        world = World(tasks=6)
        world.start_host("h0")
        model = ScriptedModel(error_rate=0.2, latency_s=2.0, ledger_path=str(ledger))
        await world.request_run("r1", config(model=model, sandbox=Inline(ledger_path=str(ledger))))
        await asyncio.sleep(3)
        zombie = world.hosts["h0"]
        thaw = asyncio.Event()
        for bus in zombie.buses.values():
            bus.frozen = thaw
        world.start_host("h1")
        await asyncio.sleep(12)
        thaw.set()
        finished = await world.finished("r1")
        await settled(world)
        events = world.events()
        assert finished.scored == 6
        owners = Counter(e.data.worker for e in events if isinstance(e.data, Claimed))
        assert len(owners) == 2
        check_ledger(events, read_ledger(ledger))

    run_virtual(scenario())


def test_two_workers_given_one_rollout(tmp_path: Path) -> None:
    """With every request handed out twice, each rollout still has one story."""

    async def scenario() -> None:
        ledger = tmp_path / "ledger"
        world = World(tasks=6)
        world.server.faults.delivered_twice = 1.0
        for number in range(3):
            world.start_host(f"h{number}")
        model = ScriptedModel(latency_s=1.0, ledger_path=str(ledger))
        await world.request_run("r1", config(model=model, sandbox=Inline(ledger_path=str(ledger))))
        await world.finished("r1")
        world.server.faults.delivered_twice = 0.0
        await settled(world)
        check_ledger(world.events(), read_ledger(ledger))
        assert len(final_table(world.events())) == 6

    run_virtual(scenario())


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


def test_full_store_pauses_admission_and_goes_on() -> None:
    """While the store is nearly full nothing new starts; with room again the run goes on by itself."""

    async def scenario() -> None:
        world = World(tasks=40)
        model = with_model(world, FakeModel(lambda _: says("<answer>1</answer>")))
        model.delay_s = 1.0
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=4))
        await asyncio.sleep(4)
        world.room = Room(-5, "the store holds 95 of 100 bytes")
        await asyncio.sleep(20)
        paused = [e.data for e in world.events() if isinstance(e.data, RunPaused)]
        assert len(paused) == 1
        assert paused[0].kind == "store"
        before = len(model.calls)
        await asyncio.sleep(20)
        assert len(model.calls) == before
        world.room = Room()
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 40

    run_virtual(scenario())


def test_a_log_nearly_full_is_filled_slowly() -> None:
    """With room for a few rollouts, a few are under way, and the log is looked at before each start that might find no room."""

    async def scenario() -> None:
        world = World(tasks=40)
        model = with_model(world, FakeModel(lambda _: says("<answer>1</answer>")))
        model.delay_s = 1.0
        limit = 40 * ROLLOUT_BYTES

        async def look_at_log() -> Room:
            used = ROLLOUT_BYTES * len(world.events(RolloutFinished))
            return Room(limit - used, "the store is full" if used >= limit else None)

        world.look_at_log = look_at_log  # type: ignore[method-assign]
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=30, num_repeats=2))
        await asyncio.sleep(60)
        assert [e.data.kind for e in world.events() if isinstance(e.data, RunPaused)] == ["store"]
        assert len(world.events(RolloutFinished)) == 40
        limit = 1000 * ROLLOUT_BYTES
        assert (await world.finished("r1")).scored == 80
        await settled(world)

    run_virtual(scenario())


def test_appends_wait_while_the_store_refuses() -> None:
    """A store that refuses every append delays the run and loses nothing."""

    async def scenario() -> None:
        world = World(tasks=10)
        world.start_host()
        await world.request_run("r1", config())
        await asyncio.sleep(0.4)
        world.server.max_messages = len(world.server.events)
        await asyncio.sleep(30)
        world.server.max_messages = None
        finished = await world.finished("r1")
        await settled(world)
        assert finished.scored == 10

    run_virtual(scenario())


def test_poison_request_is_set_aside() -> None:
    """Bytes that are no event are parked with the reason, and their neighbours finish."""

    async def scenario() -> None:
        world = World(tasks=3)
        world.start_host()
        prefix = "gym.evt.0.r1.9-9.collector._"
        await MemoryBus(world.server, "collector").append(
            f"{prefix}.cmd.harness.any", b'{"torn', fence=prefix, expected=0
        )
        await world.request_run("r1", config())
        finished = await world.finished("r1")
        await world.quiet(60)
        parked = [s for s in world.server.events if s.subject.endswith("request_parked")]
        assert len(parked) == 1
        assert finished.scored == 3
        await world.stop()

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


def test_window_is_full_all_the_time() -> None:
    """The window slides: as many rollouts are under way as asked for, never more."""

    async def scenario() -> None:
        world = World(tasks=60)
        under_way, peak = 0, 0

        class Counting(FakeModel):
            async def complete(self, call: ModelCall) -> ModelAnswer:
                nonlocal under_way, peak
                under_way += 1
                peak = max(peak, under_way)
                try:
                    await asyncio.sleep(0.5 + (hash(call.task_id) % 10) / 10)
                    return says("<answer>1</answer>")
                finally:
                    under_way -= 1

        with_model(world, Counting(lambda _: says("")))
        world.start_host()
        await world.request_run("r1", config(num_samples_in_parallel=12))
        await world.finished("r1")
        await settled(world)
        assert peak == 12

    run_virtual(scenario())
