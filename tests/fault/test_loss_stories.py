"""Histories in which a lost machine went wrong once: a message that came late, two deaths, an end amid doing things again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gym_bus import boundary
from gym_bus.blobs import Blobs
from providers.sandboxes.base import ExecResult
from providers.sandboxes.snapshots import Taken
from schemas.config import Retries
from schemas.events import (
    ActivationCompleted,
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    RequestParked,
    RolloutFinished,
    ToolCallCompleted,
)
from schemas.snapshots import Manifest
from tests.fault.test_checkpoints import WHOLE, Story, graded_by_tests
from tests.support.file_boxes import FileBox
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, config, kill_at

SHARE = 0.5


@pytest.mark.parametrize("nth", range(1, 7))
def test_an_answer_that_is_heard_after_the_checkpoint_that_holds_it(tmp_path: Path, nth: int) -> None:
    """It is in the files of the next machine already, and is not run again on top of them."""

    async def scenario() -> None:
        story = Story(tmp_path)
        server, count = story.world.server, 0
        strikes = server.faults.strikes

        def loses_one(share: float) -> bool:
            nonlocal count
            if share != SHARE:
                return strikes(share)
            if not server.events or not server.events[-1].subject.endswith("tool_call_completed"):
                return False
            count += 1
            return count == nth

        server.faults.live_lost = SHARE
        server.faults.strikes = loses_one  # type: ignore[method-assign]

        def dies(box: FileBox) -> None:
            if story.boxes.commands in {2 * (nth // 2 + 1) + 1, 5}:
                box.die()

        story.boxes.after_command = dies
        await story.run()
        looked = [e.data for e in story.world.events() if isinstance(e.data, ToolCallCompleted)][-1]
        assert looked.output == WHOLE["log"]

    run_virtual(scenario())


def test_two_hosts_die_one_after_the_other(tmp_path: Path) -> None:
    """The second machine of a session is taken over as what it is, and not as the first."""

    async def scenario() -> None:
        story = Story(tmp_path)
        story.world.start_host()

        def come_back(host: SimHost) -> None:
            asyncio.get_running_loop().call_later(0.3, lambda: story.world.start_host(host.host_id, host.kinds))

        kill_at(story.world, [("sandbox.result_appended", 4)] * 2, come_back)
        try:
            end = await story.run()
        finally:
            boundary.install(None)
        assert not story.world.events(RequestParked)
        assert [e.data.failure for e in story.world.events() if isinstance(e.data, RolloutFinished)] == [None]
        assert end.state == "scored"

    run_virtual(scenario())


def test_the_last_answer_comes_while_commands_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is over with it: the machine is given back, and what ran again in it is no loss."""

    async def scenario() -> None:
        story = Story(tmp_path)
        story.model.delay_s = 1.0
        story.boxes.refuses_snapshots = True
        run, keep = FileBox.exec, FileBox.snapshot

        async def slow(self: FileBox, command: str, **more: Any) -> ExecResult:
            await asyncio.sleep(0.7 if story.boxes.made > 1 else 0)
            return await run(self, command, **more)

        async def late(self: FileBox, blobs: Blobs, previous: Manifest | None = None) -> Taken:
            await asyncio.sleep(0.05 if story.boxes.commands == 9 else 0)
            return await keep(self, blobs, previous)

        def dies(box: FileBox) -> None:
            if story.boxes.commands == 9 and story.boxes.made == 1:
                asyncio.get_running_loop().call_later(0.01, box.die)

        monkeypatch.setattr(FileBox, "exec", slow)
        monkeypatch.setattr(FileBox, "snapshot", late)
        story.boxes.after_command = dies
        await story.run()
        assert story.count(ActivationCompleted) == 1
        assert [e.data.failure for e in story.world.events() if isinstance(e.data, RolloutFinished)] == [None]

    run_virtual(scenario())


def test_files_are_asked_of_a_machine_as_it_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wish reaches a machine that is over by then, and is answered all the same."""

    async def scenario() -> None:
        story, has_struck = Story(tmp_path), False
        story.world.tasks = [graded_by_tests()]
        keep = FileBox.snapshot

        async def strikes(self: FileBox, blobs: Blobs, previous: Manifest | None = None) -> Taken:
            nonlocal has_struck
            if story.boxes.commands == 9 and not has_struck:
                has_struck = True
                while not story.count(CheckpointRequested):
                    await asyncio.sleep(0.0001)
                self.die()
            return await keep(self, blobs, previous)

        monkeypatch.setattr(FileBox, "snapshot", strikes)
        story.world.start_host()
        await story.world.request_run("r1", config(retries=Retries(max_attempts=3, backoff_s=0.1)))
        await story.world.finished("r1", 600)
        await asyncio.sleep(60)
        asked = {e.event_id for e in story.world.events(CheckpointRequested)}
        kinds = CheckpointSaved | CheckpointFailed
        answered = {e.data.request_id for e in story.world.events() if isinstance(e.data, kinds)}
        assert asked
        assert asked <= answered
        assert story.world.server.pending() == 0
        await story.world.stop()

    run_virtual(scenario())
