"""Runs whose machines are made ahead: the log says which became whose, none serves twice, and a killed host leaves none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gym_bus import boundary
from gym_bus.settings import Settings
from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Retries
from schemas.envelope import Envelope
from schemas.events import SandboxCreated, SandboxDestroyed, SandboxRequested
from schemas.sandboxes import Bubblewrap, Checkpoints
from tests.support.checks import check_ledger, check_log
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.file_boxes import FileBox, FileBoxes
from tests.support.logs import project
from tests.support.sweeps import COARSE
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at, read_ledger

TASKS = 8
WARM = 2


def writes(call: ModelCall) -> ModelAnswer:
    """Write a line in each of two turns, and answer."""
    if call.turn <= 2:
        return calls_tools(json.dumps({"command": f"append log {call.turn}"}))
    return says("<answer>1</answer>")


class Story:
    """A simulated run of some rollouts in machines with files, of which some are made ahead."""

    def __init__(self, place: Path, memory_mib: int | None = None) -> None:
        self.ledger = place / "ledger"
        times = {"ack_wait_s": 2.0, "lease_s": 1.5, "reread_s": 0.5, "append_patience_s": 600}
        self.world = World(tasks=TASKS, settings=Settings(**times, box_memory_mib=memory_mib))
        self.boxes = FileBoxes(place, self.ledger)
        self.boxes.create_s = 0.4
        self.model = with_model(self.world, FakeModel(writes))
        self.model.delay_s = 0.5
        self.world.provider_for = lambda _: self.boxes  # type: ignore[method-assign,assignment,return-value]

    async def run(self, warm: int = WARM, checkpoints: Checkpoints | None = None) -> list[Envelope]:
        """Run to the end, check the log, and return what machines were made."""
        changes = config(
            sandbox=Bubblewrap(),
            num_samples_in_parallel=2,
            warm_sandboxes=warm,
            retries=Retries(backoff_s=0.1),
            checkpoints=checkpoints or Checkpoints(),
        )
        if not self.world.hosts:
            self.world.start_host()
        await self.world.request_run("r1", changes)
        await self.world.finished("r1", 600)
        await settled(self.world)
        self.boxes.ledger.close()
        events = self.world.events()
        check_log(events)
        check_ledger([e for e in events if not e.type.startswith("model_call")], read_ledger(self.ledger))
        created = self.world.events(SandboxCreated)
        labels = [e.data.label for e in created if isinstance(e.data, SandboxCreated)]
        assert len(set(labels)) == len(labels), "no machine is given twice"
        for event in created:
            assert isinstance(event.data, SandboxCreated)
            own = f"r1.{event.rollout_id}.{event.key}"
            assert event.data.label.startswith("r1.warm.h0.") if event.data.is_warm else event.data.label == own
        assert {label: files for label, files in self.boxes.left.items() if label in labels} == {
            e.data.label: {"log": "1\n2\n"} for e in self.world.events(SandboxCreated) if _is_whole(self, e)
        }
        return created


def _is_whole(story: Story, event: Envelope) -> bool:
    """Say whether the machine saw its session's end, with all that was done in it."""
    return isinstance(event.data, SandboxCreated) and event.data.label in story.boxes.left


def test_all_but_the_first_are_served_by_machines_that_are_ready(tmp_path: Path) -> None:
    """The view says so, none is left when the run is over, and each machine begins empty."""

    async def scenario() -> None:
        story = Story(tmp_path)
        created = await story.run()
        warm = [e for e in created if isinstance(e.data, SandboxCreated) and e.data.is_warm]
        assert len(created) == TASKS
        assert len(warm) >= TASKS - 2
        asked = {e.event_id: e for e in story.world.events(SandboxRequested)}
        waits = [
            (e.recorded_at - asked[e.data.request_id].recorded_at).total_seconds()
            for e in warm
            if isinstance(e.data, SandboxCreated)
        ]
        assert max(waits) < story.boxes.create_s / 2
        await asyncio.sleep(15)
        assert not story.boxes.alive, "the run is over"
        found = project(list(story.world.server.events), story.world.blobs)
        rows = found.execute(
            "select is_warm, label like 'r1.warm.h0.%', count(*) from sandboxes group by all"
        ).fetchall()
        assert sorted(rows) == sorted([(True, True, len(warm)), (False, False, TASKS - len(warm))])
        await story.world.stop()

    run_virtual(scenario())


@pytest.mark.parametrize("machines", [2, 3])
def test_a_host_with_little_room_serves_all(tmp_path: Path, machines: int) -> None:
    """Two sessions at a time, and room for hardly more: those made ahead are counted, once, and make way."""

    async def scenario() -> None:
        story = Story(tmp_path, machines * Bubblewrap().limits.memory_mib)
        most = 0

        def counts(_: FileBox) -> None:
            nonlocal most
            most = max(most, len(story.boxes.alive))

        story.boxes.after_command = counts
        began = story.world.clock.monotonic()
        created = await story.run()
        assert len(created) == TASKS
        assert story.world.clock.monotonic() - began < 60
        warm = [e for e in created if isinstance(e.data, SandboxCreated) and e.data.is_warm]
        assert len(warm) >= (TASKS // 2 if machines > 2 else 0)
        assert most <= machines
        await story.world.stop()

    run_virtual(scenario())


def test_by_default_none_is_made_ahead(tmp_path: Path) -> None:
    """A machine for each that asks."""

    async def scenario() -> None:
        story = Story(tmp_path)
        created = await story.run(warm=0)
        assert not [e for e in created if isinstance(e.data, SandboxCreated) and e.data.is_warm]
        assert story.boxes.made == TASKS
        await story.world.stop()

    run_virtual(scenario())


def test_a_lost_machine_is_followed_by_one_that_was_ready(tmp_path: Path) -> None:
    """With the files of the last checkpoint; one of another kind is not made ahead."""

    async def scenario(place: Path, checkpoints: Checkpoints) -> list[bool]:
        story = Story(place)
        has_died = False

        def dies(box: FileBox) -> None:
            nonlocal has_died
            if story.boxes.commands == 8 and not has_died:
                has_died = True
                box.die()

        story.boxes.after_command = dies
        created = await story.run(checkpoints=checkpoints)
        await story.world.stop()
        return [e.data.is_warm for e in created if isinstance(e.data, SandboxCreated) and e.key == "b1-2"]

    for name in ("same", "other"):
        (tmp_path / name).mkdir()
    assert run_virtual(scenario(tmp_path / "same", Checkpoints())) == [True]
    other = Checkpoints(restore_in=Bubblewrap(ledger_path="/another"))
    assert run_virtual(scenario(tmp_path / "other", other)) == [False]


def test_a_host_that_is_stopped_leaves_none(tmp_path: Path) -> None:
    """In the middle of a run."""

    async def scenario() -> None:
        story = Story(tmp_path)
        running = asyncio.create_task(story.run())
        await asyncio.sleep(4)
        assert any(".warm." in label for label in story.boxes.alive)
        given = {e.data.label for e in story.world.events(SandboxCreated) if isinstance(e.data, SandboxCreated)}
        for host in list(story.world.hosts.values()):
            host.kill()
        await asyncio.sleep(1)
        assert story.boxes.alive <= given
        story.world.start_host()
        await running
        await story.world.stop()

    run_virtual(scenario())


@pytest.mark.parametrize(
    "name", [n for n in boundary.BOUNDARIES if n.startswith("sandbox.") and n != "sandbox.decided"]
)
def test_a_host_killed_at_every_boundary(tmp_path: Path, name: str) -> None:
    """Whoever comes after it knows nothing of its machines, and takes none of them for another's."""

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
            created = await story.run()
        finally:
            boundary.install(None)
        assert any(isinstance(e.data, SandboxCreated) and e.data.is_warm for e in created)
        assert len(world.events(SandboxDestroyed)) >= len(created) - 4
        await world.stop()
        return struck

    hit = 1
    while run_virtual(scenario(hit)) and hit < 60:
        hit += 5 * COARSE
    assert hit > 1, "the boundary was never reached"
