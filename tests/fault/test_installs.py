"""Machines that are made ready first: once each, before anything else happens in them, whoever dies when."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import TypeVar

import pytest

from gym_bus import boundary
from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Retries
from schemas.events import (
    RolloutFinished,
    SandboxCreated,
    SandboxFailed,
    SandboxInstalled,
    SandboxInstallStarted,
    SandboxLost,
    ToolCallCompleted,
)
from schemas.readiness import Install
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.file_boxes import FileBox, FileBoxes
from tests.support.sweeps import COARSE
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, read_ledger

READY = Install(command="append ready yes")
LINES = 3
T = TypeVar("T")


def writes(call: ModelCall) -> ModelAnswer:
    """Write a line a turn, then look at everything and answer."""
    if call.turn <= LINES:
        return calls_tools(json.dumps({"command": f"append log {call.turn}"}))
    if call.turn == LINES + 1:
        return calls_tools(json.dumps({"command": "cat log"}), json.dumps({"command": "cat ready"}))
    return says("<answer>1</answer>")


class Story:
    """A simulated run of one rollout whose machines are made ready by `install`."""

    def __init__(self, tmp_path: Path, install: Install = READY) -> None:
        tmp_path.mkdir(exist_ok=True)
        self.ledger = tmp_path / "ledger"
        self.world = World(tasks=1)
        self.boxes = FileBoxes(tmp_path, self.ledger)
        self.install = install
        with_model(self.world, FakeModel(writes))
        self.world.provider_for = lambda _: self.boxes  # type: ignore[method-assign,assignment,return-value]

    async def run(self) -> RolloutFinished:
        """Run to the end, check the log, and return how the rollout's last attempt ended."""
        if not self.world.hosts:
            self.world.start_host()
        retries = Retries(max_attempts=3, backoff_s=0.1)
        await self.world.request_run("r1", config(retries=retries, install=self.install))
        await self.world.finished("r1", 600)
        await settled(self.world)
        self.boxes.ledger.close()
        self.check()
        return [e.data for e in self.world.events() if isinstance(e.data, RolloutFinished)][-1]

    def check(self) -> None:
        """Say that no machine was there before it was made ready, and that none was made ready twice."""
        stated = defaultdict[tuple[int, str], list[str]](list)
        for event in self.world.events():
            if event.type.startswith("sandbox_") and event.actor == "sandbox":
                stated[event.attempt, event.key].append(event.type)
        for types in stated.values():
            if "sandbox_created.v1" in types:
                made = types.index("sandbox_created.v1")
                assert types[made - 2 : made] == ["sandbox_install_started.v1", "sandbox_installed.v1"], types
                assert "sandbox_installed.v1" not in types[made:]
        keys = [line["key"] for line in read_ledger(self.ledger) if "/install-" in line["key"]]
        assert len(keys) == len(set(keys)), "an install was run twice under one name"

    def of(self, kind: type[T]) -> list[T]:
        """Return the log's events of a type."""
        return [e.data for e in self.world.events() if isinstance(e.data, kind)]


def test_a_machine_is_made_ready_first(tmp_path: Path) -> None:
    """Once, and what it left in the workspace is there for the agent."""

    async def scenario() -> None:
        story = Story(tmp_path)
        assert (await story.run()).state == "scored"
        (installed,) = story.of(SandboxInstalled)
        assert (installed.exit_code, installed.output, installed.number) == (0, "done\n", 1)
        assert [c.output for c in story.of(ToolCallCompleted)][-2:] == ["1\n2\n3\n", "yes\n"]
        assert not story.boxes.alive

    run_virtual(scenario())


def test_an_install_that_always_fails_is_tried_as_often_as_configured(tmp_path: Path) -> None:
    """Never a reward, never for ever, and of its machines nothing is left."""

    async def scenario() -> None:
        story = Story(tmp_path, Install(command="fail"))
        end = await story.run()
        assert end.failure is not None
        assert (end.state, end.reward, end.failure.kind) == ("exhausted", None, "install_failed")
        assert "exit code 3" in end.failure.message
        assert "no such package" in end.failure.message
        assert len(story.of(SandboxFailed)) == len(story.of(SandboxInstalled)) == 3
        assert story.of(SandboxCreated) == []
        assert not story.boxes.alive

    run_virtual(scenario())


def test_a_machine_that_dies_while_it_is_made_ready(tmp_path: Path) -> None:
    """The attempt has failed, and the next one begins with another machine."""

    async def scenario() -> None:
        story = Story(tmp_path)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 1:
                box.die()
                box._check()

        story.boxes.after_command = dies
        assert (await story.run()).state == "scored"
        lost = story.of(SandboxInstalled)[0]
        assert (lost.exit_code, lost.lost) == (None, "sandbox r1.0-0.b1 is gone")
        assert [f.failure.kind for f in story.of(SandboxFailed)] == ["install_failed"]

    run_virtual(scenario())


def test_the_machine_after_a_lost_one_is_made_ready_before_its_files_come_back(tmp_path: Path) -> None:
    """What was installed outside of the workspace has to be there again; in the workspace the checkpoint is all there is."""

    async def scenario() -> None:
        story = Story(tmp_path)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 3:
                box.die()

        story.boxes.after_command = dies
        end = await story.run()
        assert (end.state, end.failure) == ("scored", None)
        assert len(story.of(SandboxLost)) == 1
        assert [i.number for i in story.of(SandboxInstalled)] == [1, 1]
        assert [c.output for c in story.of(ToolCallCompleted)][-2:] == ["1\n2\n3\n", "yes\n"], "no line is there twice"

    run_virtual(scenario())


NAMES = [name for name in boundary.BOUNDARIES if name.startswith("sandbox.")]


@pytest.mark.parametrize("name", NAMES)
def test_a_host_killed_at_every_boundary(tmp_path: Path, name: str) -> None:
    """Its machine dies with it, ready or not; the next one is made ready anew, and no attempt is lost."""

    async def scenario(hit: int) -> bool:
        story = Story(tmp_path / str(hit))
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
        assert len(story.of(RolloutFinished)) == 1, "no attempt is lost"
        assert [c.output for c in story.of(ToolCallCompleted)][-2:] == ["1\n2\n3\n", "yes\n"]
        return struck

    hit = 1
    while run_virtual(scenario(hit)) and hit < 60:
        hit += COARSE
    assert hit > 1, "the boundary was never reached"


def test_both_tries_are_in_the_log(tmp_path: Path) -> None:
    """A host killed under an install leaves its beginning; the next host's has a number of its own, and the end."""

    async def scenario() -> None:
        story = Story(tmp_path)
        world = story.world
        world.start_host()

        def come_back(host: SimHost) -> None:
            asyncio.get_running_loop().call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        kill_at(world, [("sandbox.effect_done", 1)], come_back)
        try:
            await story.run()
        finally:
            boundary.install(None)
        assert [s.number for s in story.of(SandboxInstallStarted)] == [1, 2]
        assert [i.number for i in story.of(SandboxInstalled)] == [2]
        assert story.boxes.made == 2

    run_virtual(scenario())


def test_a_tasks_own_install_takes_the_place_of_the_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        story = Story(tmp_path, Install(command="fail"))
        story.world.tasks = [task.replaced(install=READY) for task in story.world.tasks]
        assert (await story.run()).state == "scored"

    run_virtual(scenario())
