"""Sessions of our own loop that are given further inputs: whatever is killed, each is dealt with once, in the same conversation."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gym_bus import boundary, inputs
from gym_bus.memory_bus import Faults
from providers.models.base import ModelAnswer, ModelCall, ModelError
from schemas.config import Retries, SimpleAgent
from schemas.events import (
    ActivationCompleted,
    ActivationFailed,
    ActivationStarted,
    ModelCallCompleted,
    ModelCallRequested,
    RolloutFinished,
    RunFinished,
    SandboxLost,
    SessionClosed,
    SessionFailed,
    SessionRequested,
    ToolCallCompleted,
)
from schemas.tasks import fingerprint_of
from schemas.values import Failure
from tests.fault.memory_run import Outcome, run_disturbed, waiting
from tests.fault.test_checkpoints import BOUNDARIES, Story, shell
from tests.fault.test_kill_every_boundary import NAMES, NEEDS_A_LOSS
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.file_boxes import FileBox
from tests.support.logs import project
from tests.support.sweeps import COARSE
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, with_follow_ups


@cache
def undisturbed() -> Outcome:
    """Return what the run comes to when nothing happens."""
    with TemporaryDirectory() as directory:
        return run_disturbed(Path(directory) / "ledger", follow_ups=2)


@pytest.mark.parametrize("what", ["host", "bus"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in NEEDS_A_LOSS])
def test_kill_at_boundary(name: str, what: str, tmp_path: Path) -> None:
    """Killing the host or the bus anywhere in a session of three inputs changes nothing in the final table."""
    hits = undisturbed().hits[name]
    for nth in sorted({hits // 3 or 1, 2 * hits // 3 or 1})[-1 if COARSE > 1 else 0 :]:
        outcome = run_disturbed(tmp_path / f"ledger-{nth}", [(name, nth)], what, follow_ups=2)  # type: ignore[arg-type]
        assert outcome.kills == 1, "the boundary was not hit"
        assert outcome.table == undisturbed().table
        assert outcome.finished == undisturbed().finished


@pytest.mark.parametrize("name", [n for n in NAMES if n not in NEEDS_A_LOSS])
def test_kill_while_somebody_gives_the_inputs(name: str, tmp_path: Path) -> None:
    """What is said from outside comes to what the same inputs of a task come to, wherever the host is killed."""
    hits = undisturbed().hits[name]
    for nth in [hits // 2 or 1] if COARSE > 1 else sorted({1, hits // 3 or 1, 2 * hits // 3 or 1}):
        targets = [(name, nth)]
        outcome = run_disturbed(tmp_path / f"ledger-{nth}", targets, follow_ups=2, from_outside=True)
        assert outcome.kills == 1, "the boundary was not hit"
        assert outcome.table == undisturbed().table
        assert outcome.finished == undisturbed().finished


@pytest.mark.parametrize("seed", range(4))
def test_inputs_through_a_bad_network(seed: int, tmp_path: Path) -> None:
    """Lost acknowledgements, lost live messages and double deliveries: each input is taken once."""
    faults = Faults(seed=seed, ack_lost=0.03, live_lost=0.1 * (seed % 2), delivered_twice=0.1 * (seed > 1))
    outcome = run_disturbed(tmp_path / "ledger", faults=faults, hosts=2, follow_ups=2, from_outside=True)
    assert outcome.table == undisturbed().table


def played(model: FakeModel, *, follow_ups: int = 1, **changes: Any) -> tuple[RunFinished, World]:
    """Run one rollout with `model`; return its end and what is in the log."""
    world = World(tasks=1)
    world.tasks = [with_follow_ups(task, follow_ups) for task in world.tasks]

    async def scenario() -> RunFinished:
        with_model(world, model)
        world.start_host()
        await world.request_run("r1", config(**changes))
        finished = await world.finished("r1")
        await settled(world)
        return finished

    return run_virtual(scenario()), world


def test_the_second_input_comes_after_the_whole_first_conversation() -> None:
    """The model sees all that was said, then what is new; the session closes with the turns of both."""

    def answer(call: ModelCall) -> ModelAnswer:
        if call.turn in {1, 3}:
            return calls_tools('{"command": "echo $((1+1))"}')
        return says("<answer>2</answer>" if call.turn == 2 else "<answer>11</answer>")

    model = FakeModel(answer)
    finished, world = played(model)
    assert finished.scored == 1
    first_end, second_begin = model.calls[1].messages, model.calls[2].messages
    assert second_begin[: len(first_end)] == first_end
    said, new = second_begin[len(first_end) :]
    assert (said.role, said.content) == ("assistant", "<answer>2</answer>")
    assert (new.role, new.content) == ("user", "And what is 1 + 10?")
    (end,) = [e.data for e in world.events() if isinstance(e.data, RolloutFinished)]
    assert end.reward == 1.0
    (closed,) = [e.data for e in world.events() if isinstance(e.data, SessionClosed)]
    assert (closed.evidence.turns, closed.evidence.answer) == (4, "<answer>11</answer>")
    assert [(done.activation, done.turns) for done in closed.activations] == [(1, 2), (2, 2)]
    assert [e.data.evidence.turns for e in world.events() if isinstance(e.data, ActivationCompleted)] == [2, 2]
    (started,) = [e.data for e in world.events() if isinstance(e.data, ActivationStarted)]
    assert started.fingerprint == fingerprint_of(started.messages) == closed.activations[1].fingerprint
    (asked,) = [e.data for e in world.events() if isinstance(e.data, SessionRequested)]
    assert asked.continuation
    assert [len(e.data.new_messages) for e in world.events() if isinstance(e.data, ModelCallRequested)] == [1, 1, 1, 1]


def viewed(world: World) -> list[Any]:
    """Return what the view `activations` shows of a world of one attempt."""
    store = project(list(world.server.events), world.blobs)
    found = store.execute("select attempt, asked_at <= ended_at from activations").fetchall()
    assert set(found) == {(1, True)}
    return store.execute("select activation, state, launches, turns from activations order by all").fetchall()


def test_each_activation_has_its_own_time_and_its_own_steps() -> None:
    """Three that take most of their time end well; none is charged for the ones before."""
    model = FakeModel(
        lambda call: calls_tools('{"command": "echo 1"}') if call.turn % 2 else says("<answer>22</answer>")
    )
    model.delay_s = 10
    finished, world = played(model, follow_ups=2, agent=SimpleAgent(timeout_s=25, max_steps=2))
    assert finished.scored == 1
    assert len([e for e in world.events() if isinstance(e.data, ActivationCompleted)]) == 3
    assert viewed(world) == [(n, "completed", 0, 2) for n in (1, 2, 3)]
    asked = [(e.data.turn, e.data.activation) for e in world.events() if isinstance(e.data, ModelCallRequested)]
    assert asked == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]


def test_a_failed_activation_ends_the_session_as_failed() -> None:
    """The second one runs out of time: it is the one that failed, nothing is graded, and another attempt begins with the first."""

    def answer(call: ModelCall) -> ModelAnswer:
        model.delay_s = 1000
        return says("<answer>1</answer>")

    model = FakeModel(answer)
    finished, world = played(model, agent=SimpleAgent(timeout_s=30), retries=Retries(max_attempts=1))
    assert (finished.failed, finished.scored) == (1, 0)
    (failed,) = [e.data for e in world.events() if isinstance(e.data, ActivationFailed)]
    assert (failed.activation, failed.failure.kind) == (2, "agent_timeout")
    assert viewed(world) == [(1, "completed", 0, 1), (2, "failed", 0, None)]


@pytest.mark.parametrize("is_killed", [False, True])
def test_another_attempt_is_given_what_was_said_to_the_one_before(*, is_killed: bool) -> None:
    """Whoever said it has gone: the rollout is graded for the whole conversation, not for what the failure left of it.

    Nor does it wait for somebody again, for an end was asked for; the same where all hosts are killed before the attempt begins.
    """
    world = World(tasks=1)
    world.tasks = [waiting(with_follow_ups(task, 1)) for task in world.tasks]
    words = "And what is 1 + 10?"

    def answer(call: ModelCall) -> ModelAnswer:
        is_second = sum(message.role == "user" for message in call.messages) > 1
        if is_second and not any(isinstance(e.data, SessionFailed) for e in world.events()):
            raise ModelError(Failure(kind="provider_bad_answer", message="no answer", stage="model", terminal=False))
        return says("<answer>11</answer>" if is_second else "<answer>2</answer>")

    async def scenario() -> RunFinished:
        model = FakeModel(answer)
        model.delay_s = 2
        with_model(world, model)
        host = world.start_host()
        await world.request_run("r1", config(retries=Retries(max_attempts=2, backoff_s=30, backoff_max_s=30)))
        log = world.cli_log()
        while not any(isinstance(e.data, ActivationCompleted) for e in world.events()):
            await asyncio.sleep(0.1)
        standing = await inputs.standing_of(log, "r1", "0-0")
        giving = asyncio.create_task(inputs.give(log, standing, words, within_s=600))
        while not any(isinstance(e.data, ActivationStarted) for e in world.events()):
            await asyncio.sleep(0.1)
        await inputs.end(log, await inputs.standing_of(log, "r1", "0-0"))
        with pytest.raises(inputs.NotTaken, match="provider_bad_answer"):
            await giving
        while not any(isinstance(e.data, RolloutFinished) for e in world.events()):
            await asyncio.sleep(0.1)
        if is_killed:
            host.kill()
            world.start_host()
        finished = await world.finished("r1")
        assert await inputs.give(log, await inputs.standing_of(log, "r1", "0-0"), words, activation=2, within_s=1) == 2
        return finished

    finished = run_virtual(scenario())
    assert (finished.scored, finished.failed) == (1, 0)
    assert [e.data.reward for e in world.events() if isinstance(e.data, RolloutFinished)] == [None, 1.0]
    began, ended = (
        [e.recorded_at for e in world.events() if isinstance(e.data, kind)][-1]
        for kind in (SessionRequested, SessionClosed)
    )
    assert (ended - began).total_seconds() < 60
    started = [(e.attempt, e.data.activation) for e in world.events() if isinstance(e.data, ActivationStarted)]
    assert started == [(1, 2), (2, 2)]


def test_a_limit_that_holds_for_all_inputs_ends_the_session_with_what_there_is() -> None:
    """A step too many in the first activation: the second one is not begun."""
    model = FakeModel(lambda _: calls_tools('{"command": "echo 1"}'))
    finished, world = played(model, agent=SimpleAgent(max_steps=2))
    assert finished.scored == 1
    assert not [e for e in world.events() if isinstance(e.data, ActivationStarted)]
    (closed,) = [e.data for e in world.events() if isinstance(e.data, SessionClosed)]
    assert closed.evidence.stop_reason == "max_steps"


def writes_in_two(call: ModelCall) -> ModelAnswer:
    """Write two lines for the first input, two for the second, then look at the file and answer."""
    match call.turn:
        case 1 | 2 | 4:
            return shell(f"append log {call.turn} a", f"append log {call.turn} b")
        case 5:
            return shell("cat log")
        case _:
            return says("<answer>11</answer>")


COMMANDS = 7
WRITTEN = "".join(f"{n} a\n{n} b\n" for n in (1, 2, 4))


def two_inputs(tmp_path: Path) -> Story:
    """Return a story of two inputs in a machine with files."""
    story = Story(tmp_path, writes_in_two)
    story.world.tasks = [with_follow_ups(task, 1) for task in story.world.tasks]
    return story


def check_two_inputs(story: Story, end: RolloutFinished) -> None:
    """Check that both were dealt with once, in one attempt, and the files came out as if nothing had happened."""
    assert (end.state, end.failure, end.reward) == ("scored", None, 1.0)
    assert story.count(RolloutFinished) == 1
    assert (story.count(ActivationStarted), story.count(ActivationCompleted)) == (1, 2)
    assert story.count(ModelCallCompleted) == 6
    looked = [e.data for e in story.world.events() if isinstance(e.data, ToolCallCompleted)][-1]
    assert looked.output == WRITTEN


@pytest.mark.parametrize("command", range(1, COMMANDS + 1))
def test_a_machine_that_dies_in_either_activation(tmp_path: Path, command: int) -> None:
    """The session goes on in a new one, in the activation in which it was, with the files of both."""

    async def scenario() -> None:
        story = two_inputs(tmp_path)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == command:
                box.die()

        story.boxes.after_command = dies
        check_two_inputs(story, await story.run())
        assert story.count(SandboxLost) == 1

    run_virtual(scenario())


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_host_that_is_killed_with_the_machine(tmp_path: Path, name: str) -> None:
    """At every boundary of harness, model and sandbox, early and late in the session."""

    async def scenario(hit: int) -> bool:
        place = tmp_path / str(hit)
        place.mkdir()
        story, struck = two_inputs(place), False
        world = story.world
        world.start_host()

        def come_back(host: SimHost) -> None:
            nonlocal struck
            struck = True
            asyncio.get_running_loop().call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        kill_at(world, [(name, hit)], come_back)
        try:
            check_two_inputs(story, await story.run())
        finally:
            boundary.install(None)
        return struck

    hit = 1
    while run_virtual(scenario(hit)) and hit < 40:
        hit += 3 * COARSE
    assert hit > 1, "the boundary was never reached"
