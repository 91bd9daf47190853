"""A session whose machine is lost goes on in another one, with the files of the last checkpoint, and ends as an undisturbed one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gym_bus import boundary
from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Retries
from schemas.events import (
    CheckpointFailed,
    CheckpointSaved,
    ModelCallCompleted,
    RolloutFinished,
    SandboxCreated,
    SandboxDestroyed,
    SandboxLost,
    SandboxRequested,
    ToolCallCompleted,
    ToolCallRequested,
)
from schemas.sandboxes import Bubblewrap, Checkpoints
from schemas.tasks import Task, TaskInput
from schemas.values import Message
from tests.support.checks import check_ledger
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.file_boxes import FileBox, FileBoxes
from tests.support.sweeps import COARSE
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, read_ledger

TURNS = 4
WHOLE = {"log": "".join(f"{n} a\n{n} b\n" for n in range(1, TURNS + 1))}
ANSWER = "<answer>1</answer>"


def shell(*commands: str) -> ModelAnswer:
    """Return an answer that runs commands."""
    return calls_tools(*(json.dumps({"command": command}) for command in commands))


def writes(call: ModelCall) -> ModelAnswer:
    """Write two lines a turn, then look at the file and answer."""
    if call.turn <= TURNS:
        return shell(f"append log {call.turn} a", f"append log {call.turn} b")
    if call.turn == TURNS + 1:
        return shell("cat log")
    return says(ANSWER)


def graded_by_tests() -> Task:
    """Return a task whose workspace is handed in and graded by a test."""
    given = TaskInput(task_id="t", messages=(Message(role="user", content="Write."),), hands_in="files")
    data = {"command": f"check log {2 * TURNS}", "tests": {"check": "text"}, "artifacts": ["log"]}
    return Task(index=0, input=given, verifier="commands", verifier_data=data)


class Story:
    """A simulated run of one rollout in machines with files."""

    def __init__(self, tmp_path: Path, answer: Callable[[ModelCall], ModelAnswer] = writes) -> None:
        self.ledger = tmp_path / "ledger"
        self.world = World(tasks=1)
        self.boxes = FileBoxes(tmp_path, self.ledger)
        self.model = with_model(self.world, FakeModel(answer))
        self.world.provider_for = lambda _: self.boxes  # type: ignore[method-assign,assignment,return-value]

    async def run(
        self, checkpoints: Checkpoints | None = None, max_attempts: int = 3, *, is_exact: bool = True
    ) -> RolloutFinished:
        """Run to the end, check the log, and return how the rollout's last attempt ended."""
        retries = Retries(max_attempts=max_attempts, backoff_s=0.1)
        changes = {"checkpoints": checkpoints} if checkpoints else {}
        if not self.world.hosts:
            self.world.start_host()
        await self.world.request_run("r1", config(retries=retries, **changes))
        await self.world.finished("r1", 600)
        await settled(self.world)
        events = self.world.events()
        self.boxes.ledger.close()
        if len(self.world.all_hosts) == 1:
            assert not self.boxes.alive, "what is left of a machine is removed, however it ended"
        tools = [line for line in read_ledger(self.ledger) if line["kind"] == "tool"]
        if not is_exact:  # grading is repeatable
            tools = [line for line in tools if ".g" not in line["label"]]
        check_ledger([e for e in events if not e.type.startswith("model_call")], tools)
        return [e.data for e in events if isinstance(e.data, RolloutFinished)][-1]

    def count(self, *kinds: type) -> int:
        """Return how many events of these types there are."""
        return len([e for e in self.world.events() if isinstance(e.data, kinds)])


def test_an_undisturbed_rollout_is_kept_after_every_turn(tmp_path: Path) -> None:
    """One checkpoint a turn, after its last command; what has not changed is not stored again."""

    async def scenario() -> None:
        story = Story(tmp_path)
        assert (await story.run()).state == "scored"
        saved = [e.data for e in story.world.events() if isinstance(e.data, CheckpointSaved)]
        assert [s.bytes for s in saved] == [8, 16, 24, 32, 32]
        assert [s.files for s in saved] == [1] * 5
        assert saved[-1].snapshot == saved[-2].snapshot
        assert saved[-1].stored_bytes == 0
        asked = [e.data.keeps_files for e in story.world.events() if isinstance(e.data, ToolCallRequested)]
        assert asked == [False, True] * TURNS + [True]
        assert list(story.boxes.left.values()) == [WHOLE]

    run_virtual(scenario())


@pytest.mark.parametrize("command", range(1, 2 * TURNS + 1))
def test_a_machine_that_dies_under_a_command(tmp_path: Path, command: int) -> None:
    """The session goes on in a new one: no attempt is lost, no call of the model made again, and the files come out alike."""

    async def scenario() -> None:
        story = Story(tmp_path)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == command:
                box.die()

        story.boxes.after_command = dies
        end = await story.run()
        assert (end.state, end.failure) == ("scored", None)
        assert story.count(RolloutFinished) == 1
        assert story.count(SandboxLost) == 1
        assert story.count(SandboxCreated) == 2
        assert story.count(ModelCallCompleted) == TURNS + 2
        assert story.boxes.left["r1.0-0.b1-2"] == WHOLE

    run_virtual(scenario())


BOUNDARIES = [
    name
    for name in boundary.BOUNDARIES
    if name.partition(".")[0] in {"sandbox", "harness", "model"} and name != "sandbox.decided"  # of the dying alone
]


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_host_killed_at_every_boundary(tmp_path: Path, name: str) -> None:
    """Its machines die with it; whoever takes over has new ones made, with the files of the last checkpoint."""

    async def scenario(hit: int) -> bool:
        place = tmp_path / str(hit)
        place.mkdir()
        story = Story(place)
        world, struck = story.world, False
        world.start_host()

        def come_back(host: SimHost) -> None:
            nonlocal struck
            struck = True
            asyncio.get_running_loop().call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        kill_at(world, [(name, hit)], come_back)
        try:
            end = await story.run()
        finally:
            boundary.install(None)
        assert (end.state, end.failure) == ("scored", None)
        endings = [e.data.failure for e in story.world.events() if isinstance(e.data, RolloutFinished)]
        assert endings == [None], "no attempt is lost"
        looked = [e.data for e in story.world.events() if isinstance(e.data, ToolCallCompleted)][-1]
        assert looked.output == WHOLE["log"]
        created, gone = story.count(SandboxCreated), story.count(SandboxDestroyed)
        assert created <= gone + story.count(SandboxLost)
        return struck

    hit = 1
    while run_virtual(scenario(hit)) and hit < 60:
        hit += 3 * COARSE
    assert hit > 1, "the boundary was never reached"


def test_what_the_model_saw_must_come_out_alike(tmp_path: Path) -> None:
    """A command whose result cannot be had again ends the attempt as a failure of the machine, never with another past."""

    def counts(call: ModelCall) -> ModelAnswer:
        commands = {1: "count", 2: "append log x", 3: "append log y"}
        return shell(commands[call.turn]) if call.turn in commands else says(ANSWER)

    async def scenario() -> None:
        story = Story(tmp_path, counts)
        story.boxes.refuses_snapshots = True

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 2:
                box.die()

        story.boxes.after_command = dies
        assert (await story.run()).state == "scored"
        first = next(e.data for e in story.world.events() if isinstance(e.data, RolloutFinished))
        assert first.failure is not None
        assert first.failure.kind == "sandbox_lost"
        assert "call 0 of turn 1" in first.failure.message
        assert first.reward is None

    run_virtual(scenario())


def test_without_a_checkpoint_all_commands_run_again(tmp_path: Path) -> None:
    """A failed checkpoint never fails a run: the machine is well; and if it is lost, what it did is done again from the start."""

    async def scenario() -> None:
        story = Story(tmp_path)
        story.boxes.refuses_snapshots = True

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 6:
                box.die()

        story.boxes.after_command = dies
        end = await story.run()
        assert (end.state, end.failure) == ("scored", None)
        assert story.count(RolloutFinished) == 1
        assert story.count(CheckpointFailed) >= 5
        assert story.boxes.left["r1.0-0.b1-2"] == WHOLE
        again = [e.data for e in story.world.events() if isinstance(e.data, SandboxRequested)][1]
        assert again.restore is None
        assert [(a.turn, a.index) for a in again.seen] == [(n, k) for n in (1, 2, 3) for k in (0, 1)]

    run_virtual(scenario())


def test_machines_that_keep_dying(tmp_path: Path) -> None:
    """They are made again as often as configured; then the attempt has failed, and the next one begins with a fresh machine."""

    async def scenario() -> None:
        story = Story(tmp_path)
        story.boxes.after_command = lambda box: box.die() if story.boxes.commands <= 4 else None
        end = await story.run(Checkpoints(max_restores=2))
        assert end.state == "scored"
        assert story.count(RolloutFinished) == 2
        numbers = [e.data.number for e in story.world.events() if isinstance(e.data, SandboxRequested)]
        assert numbers == [1, 2, 3, 1, 2]

    run_virtual(scenario())


@pytest.mark.parametrize("checkpoints", [Checkpoints(when="never"), Checkpoints(max_restores=0)])
def test_a_lost_machine_ends_the_attempt_where_nothing_is_kept(tmp_path: Path, checkpoints: Checkpoints) -> None:
    """As an infrastructure failure, with no further call of the model; the next attempt is scored."""

    async def scenario() -> None:
        story = Story(tmp_path)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 3:
                box.die()

        story.boxes.after_command = dies
        assert (await story.run(checkpoints)).state == "scored"
        assert story.count(RolloutFinished) == 2
        calls = [e for e in story.world.events() if isinstance(e.data, ModelCallCompleted) and e.attempt == 1]
        assert len(calls) == 2

    run_virtual(scenario())


def test_a_machine_may_be_restored_in_another_place(tmp_path: Path) -> None:
    """With `restore_in`, another provider's machine gets the files."""

    async def scenario() -> None:
        story = Story(tmp_path)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 3:
                box.die()

        story.boxes.after_command = dies
        end = await story.run(Checkpoints(restore_in=Bubblewrap()))
        assert end.state == "scored"
        asked = [e.data.sandbox.type for e in story.world.events() if isinstance(e.data, SandboxRequested)]
        assert asked == ["inline", "bubblewrap"]
        assert story.boxes.left["r1.0-0.b1-2"] == WHOLE

    run_virtual(scenario())


def test_a_host_that_comes_back_ends_what_is_no_longer_its_own(tmp_path: Path) -> None:
    """It stood still past its lease, and its machine was given up: the files go on elsewhere, and the old machine is ended."""

    async def scenario() -> None:
        story = Story(tmp_path)
        story.model.delay_s = 1.0
        old, thaw = story.world.start_host("h0"), asyncio.Event()

        async def freeze() -> None:
            await asyncio.sleep(3)
            for bus in old.buses.values():
                bus.frozen = thaw
            story.world.start_host("h1")

        freezing = asyncio.create_task(freeze())
        await story.world.request_run("r1", config())
        assert (await story.world.finished("r1", 600)).scored == 1
        await freezing
        assert story.boxes.alive == {"r1.0-0.b1"}
        thaw.set()
        await asyncio.sleep(30)
        assert not story.boxes.alive
        await settled(story.world)
        assert story.count(SandboxLost) == 1

    run_virtual(scenario())


NOT_OF_TESTS = {
    "verifier.effect_started",
    "verifier.effect_done",
    "verifier.result_appended",
}  # of the grader's own process
GRADING = [name for name in boundary.BOUNDARIES if name.partition(".")[0] in {"sandbox", "verifier"}]


@pytest.mark.parametrize("name", [name for name in GRADING if name not in {"sandbox.decided", *NOT_OF_TESTS}])
def test_a_host_killed_while_files_are_handed_in_and_graded(tmp_path: Path, name: str) -> None:
    """Whoever takes over keeps the files again, or grades again in another machine; the reward is that of the undisturbed run."""

    async def scenario(hit: int) -> bool:
        place = tmp_path / str(hit)
        place.mkdir()
        story = Story(place)
        world, struck = story.world, False
        world.tasks = [graded_by_tests()]
        world.start_host()

        def come_back(host: SimHost) -> None:
            nonlocal struck
            struck = True
            asyncio.get_running_loop().call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        kill_at(world, [(name, hit)], come_back)
        try:
            end = await story.run(is_exact=False)
        finally:
            boundary.install(None)
        assert (end.state, end.reward) == ("scored", 1.0)
        return struck

    hit = 1
    while run_virtual(scenario(hit)) and hit < 120:
        hit += 5 * COARSE
    assert hit > 1, "the boundary was never reached"


@pytest.mark.parametrize("is_early", [True, False])
def test_a_machine_that_is_lost_when_all_is_done(tmp_path: Path, is_early: bool) -> None:
    """What is handed in is the last checkpoint, or what comes out of another machine; no attempt is lost."""

    async def scenario() -> None:
        story = Story(tmp_path)
        story.world.tasks = [graded_by_tests()]
        story.model.delay_s = 1.0

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 2 * TURNS + 1:
                loop = asyncio.get_running_loop()
                loop.call_later(0.3 if is_early else 0.9995, box.die)

        story.boxes.after_command = dies
        end = await story.run(is_exact=False)
        assert (end.state, end.reward) == ("scored", 1.0)
        assert story.count(RolloutFinished) == 1
        assert story.count(SandboxLost) == 1

    run_virtual(scenario())
