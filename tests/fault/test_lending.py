"""A machine that is lent: whoever is killed when, commands run for who has it, and everybody who asks is answered."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from actors.sandbox.box import BoxMachine
from actors.sandbox.box_state import BoxState
from gym_bus import boundary
from gym_bus.event_log import Draft, EventLog, Writer
from gym_bus.memory_bus import MemoryBus
from gym_bus.subjects import ANY, aggregate
from projections import violations
from schemas.base import Answer, Event
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointFailed,
    CheckpointRequested,
    CheckpointSaved,
    SandboxCloseRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxGiveBackRequested,
    SandboxGivenBack,
    SandboxLendRequested,
    SandboxLent,
    SandboxLost,
    SandboxRequested,
    SandboxRequestRefused,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    ToolCallRequested,
)
from schemas.ids import sandbox_key
from schemas.sandboxes import Inline
from schemas.values import Party
from tests.support.checks import check_ledger, check_log
from tests.support.file_boxes import FileBoxes
from tests.support.histories import Life
from tests.support.logs import project
from tests.support.sweeps import COARSE
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, kill_at, read_ledger

OWNER = Party(actor="harness", key="s1")
BORROWER = Party(actor="verifier", key="v1")
OTHER = Party(actor="harness", key="s1-other")
ANSWERED_WITHIN_S = 300


class Gone(Exception):
    """The machine was lost: what its owner does next it does in another one."""


class Asker:
    """An aggregate of the rollout that asks, and reads the log until it is answered; it is never killed itself."""

    def __init__(self, world: World, who: Party) -> None:
        bus = MemoryBus(world.server, who.actor)
        self.log = EventLog(bus, world.codec, world.clock, worker=f"{who.actor}.test", patience_s=600)
        self.world = world
        self.where = aggregate("r1", "0-0", who.actor, who.key)
        self.writer: Writer
        self.asked = 0

    async def begin(self) -> None:
        """Take the aggregate, whoever had it."""
        self.writer = await self.log.claim_over(self.where, 1, None)

    async def say(self, data: Event, place: str = ANY) -> Envelope:
        """Append a request."""
        self.asked += 1
        return await self.log.append(self.writer, Draft(data, None, f"{data.TYPE}/{self.asked}", place=place))

    async def answer(self, request: Envelope) -> Any:
        """Wait for the answer to a request."""
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while True:
                for event in self.world.events():
                    if isinstance(event.data, Answer) and event.data.request_id == request.event_id:
                        return event.data
                await asyncio.sleep(0.05)

    async def ask(self, data: Event, place: str = ANY) -> Any:
        """Append a request and wait for its answer."""
        return await self.answer(await self.say(data, place))


PLACES = itertools.count()


def command(text: str, number: int = 1, right: int | None = None) -> ToolCallRequested:
    """Return a request for a command that is like no other one."""
    return ToolCallRequested(
        call_id="c", turn=1, index=next(PLACES), tool="shell", command=text, timeout_s=5, number=number, right=right
    )


class Lent:
    """A world of one rollout in which a machine is asked for, lent, used, given back and closed."""

    def __init__(self, tmp_path: Path) -> None:
        self.ledger = tmp_path / "ledger"
        self.world = World(tasks=1)
        self.boxes = FileBoxes(tmp_path, self.ledger)
        self.world.provider_for = lambda _: self.boxes  # type: ignore[method-assign,assignment,return-value]
        self.owner, self.borrower, self.other = (Asker(self.world, who) for who in (OWNER, BORROWER, OTHER))
        self.intrusions: list[str] = []

    async def begin(self) -> None:
        """Take the three aggregates."""
        for who in (self.owner, self.borrower, self.other):
            await who.begin()

    async def run(self) -> str:
        """Do all of it, in as many machines as it takes; return what is in the file at the end."""
        for number in range(1, 20):
            created = await self.owner.ask(SandboxRequested(sandbox=Inline(), number=number))
            if isinstance(created, SandboxCreated):
                try:
                    text = await self.once(number, created.place)
                except Gone:
                    text = None
                closed = await self.owner.ask(SandboxCloseRequested(number=number), created.place)
                assert isinstance(closed, SandboxDestroyed)
                if text is not None:
                    return text
        pytest.fail("no machine lasted")

    async def once(self, number: int, place: str) -> str:
        """Do all of it in one machine; raises `Gone`."""
        owner, borrower = self.owner, self.borrower
        self.got(await owner.ask(command("append log own", number), place), ToolCallCompleted)
        for right in (1, 2):
            lent = self.got(await owner.ask(SandboxLendRequested(number=number, borrower=BORROWER), place), SandboxLent)
            assert (lent.borrower, lent.right) == (BORROWER, right)
            await self.intrude(number, place, right)
            self.got(await borrower.ask(command(f"append log lent{right}", number, right), place), ToolCallCompleted)
            wish = CheckpointRequested(number=number, right=right)
            self.got(await borrower.ask(wish, place), CheckpointSaved)
            back: Event = SandboxGiveBackRequested(number=number, right=right)
            who = borrower
            if right == 2:  # the borrower is silent, and its owner takes the machine
                back, who = SandboxLendRequested(number=number), owner
            given = self.got(await who.ask(back, place), SandboxGivenBack)
            assert (given.borrower, given.right, given.is_taken) == (BORROWER, right, right == 2)
            await self.refused(borrower, command("append log late", number, right), place, "stale")
        return str(self.got(await owner.ask(command("cat log", number), place), ToolCallCompleted).output)

    async def intrude(self, number: int, place: str, right: int) -> None:
        """Try all that is nobody's to do while the machine is lent."""
        await self.refused(self.owner, command("append log intruder", number), place, "not_lent")
        await self.refused(self.other, command("append log intruder", number, right), place, "not_lent")
        await self.refused(self.other, CheckpointRequested(number=number, right=right), place, "not_lent")
        await self.refused(self.other, SandboxGiveBackRequested(number=number, right=right), place, "not_lent")
        lend = SandboxLendRequested(number=number, borrower=OTHER)
        await self.refused(self.borrower, lend, place, "not_lent")
        await self.refused(self.borrower, SandboxCloseRequested(number=number), place, "not_lent")

    async def refused(self, who: Asker, data: Event, place: str, kind: str) -> None:
        """Ask what must be refused, whatever was killed meanwhile."""
        request = await who.say(data, place)
        self.intrusions.append(request.event_id)
        answer = await who.answer(request)
        assert isinstance(answer, ToolCallFailed | CheckpointFailed | SandboxRequestRefused), answer
        assert answer.failure.kind == kind, answer

    @staticmethod
    def got(answer: Any, wanted: type[Event]) -> Any:
        """Return the answer that was hoped for; raises `Gone` for one that says that the machine is lost."""
        if isinstance(answer, wanted):
            return answer
        is_lost = isinstance(answer, ToolCallLost | SandboxDestroyed) or answer.failure.kind == "sandbox_lost"
        assert is_lost, answer
        raise Gone

    def check(self) -> None:
        """Check the log and the ledger, and that nothing was started for an intruder."""
        self.boxes.ledger.close()
        events, tools = self.world.events(), read_ledger(self.ledger)
        check_log(events)
        check_ledger(events, tools)
        assert not {line["key"] for line in tools} & set(self.intrusions)
        assert len(self.intrusions) >= 12


def test_a_machine_is_lent_twice_and_closed(tmp_path: Path) -> None:
    """What the borrower did is in the machine, and nothing of anybody else's."""

    async def scenario() -> None:
        story = Lent(tmp_path)
        story.world.start_host(kinds=("sandbox",))
        await story.begin()
        assert await story.run() == "own\nlent1\nlent2\n"
        assert not story.boxes.alive
        await story.world.quiet()
        await story.world.stop()
        story.check()
        columns = (
            "key, owner_actor, owner_key, borrower_actor, borrower_key, right_number, ended_by, ended_at > lent_at"
        )
        found = project(list(story.world.server.events), story.world.blobs)
        assert found.execute("select * from quarantine").fetchall() == []
        assert found.execute(f"select {columns} from lendings order by seq").fetchall() == [
            ("b1", "harness", "s1", "verifier", "v1", 1, "given_back", True),
            ("b1", "harness", "s1", "verifier", "v1", 2, "taken", True),
        ]
        assert violations(found) == {}

    run_virtual(scenario())


def lives_of(world: World) -> list[Life]:
    """Return the machines of the log, with all that their owner may be told."""
    events = world.events()
    machine = BoxMachine()
    return [
        Life(
            machine,
            aggregate("r1", "0-0", "sandbox", sandbox_key(1, event.data.number)),
            1,
            machine.begin(event),
            tuple(e for e in events if e.sequence > event.sequence),
        )
        for event in events
        if isinstance(event.data, SandboxRequested)
    ]


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_laws_of_machines_hold_while_it_is_lent(tmp_path: Path, *, is_killed: bool) -> None:
    """At each prefix of the log: nothing is stated twice, repeats and old requests change nothing, a state survives its snapshot."""

    async def scenario() -> World:
        story = Lent(tmp_path)
        world = story.world
        world.start_host(kinds=("sandbox",))
        if is_killed:
            kill_at(world, [("sandbox.effect_started", 4)], lambda host: world.start_host(host.host_id, host.kinds))
        try:
            await story.begin()
            await story.run()
            await world.quiet()
        finally:
            boundary.install(None)
        await world.stop()
        return world

    lives = lives_of(run_virtual(scenario()))
    assert len(lives) == (2 if is_killed else 1)
    for life in lives:
        states, in_log = life.states(), set[str]()
        for n, state in enumerate(states):
            if n:
                in_log.add(life.events[n - 1].event_id)
                assert life.machine.evolve(state, life.events[n - 1]) == state
            for event in life.events[:n]:
                assert life.is_own(event) or life.machine.evolve(state, event) == state
            for known in (state, life.machine.taken_over(state)):
                ids = [life.id_of(draft) for draft in life.machine.decide(known, life.events[0].recorded_at)]
                assert len(set(ids)) == len(ids)
                assert not in_log.intersection(ids)
            assert BoxState.model_validate_json(state.model_dump_json()) == state
        assert life.machine.is_done(states[-1])
        assert not life.machine.decide(states[-1], life.events[0].recorded_at)


BOUNDARIES = [name for name in boundary.BOUNDARIES if name.startswith("sandbox.")]


@pytest.mark.parametrize("name", BOUNDARIES)
def test_a_host_killed_at_every_boundary(tmp_path: Path, name: str) -> None:
    """The machine dies with it, its borrower and its owner are told, and in the next one all is as in an undisturbed one."""

    async def scenario(hit: int) -> bool:
        place = tmp_path / str(hit)
        place.mkdir()
        story = Lent(place)
        world, struck = story.world, False
        world.start_host(kinds=("sandbox",))

        def come_back(host: SimHost) -> None:
            nonlocal struck
            struck = True
            asyncio.get_running_loop().call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        kill_at(world, [(name, hit)], come_back)
        try:
            await story.begin()
            assert await story.run() == "own\nlent1\nlent2\n"
            await world.quiet()
        finally:
            boundary.install(None)
        await world.stop()
        story.check()
        lost = [e for e in world.events() if isinstance(e.data, SandboxLost)]
        assert len(lost) <= 1
        return struck

    hit = 1
    while run_virtual(scenario(hit)) and hit < 80:
        hit += 2 * COARSE
    assert hit > 1, "the boundary was never reached"


def test_a_borrower_that_was_replaced_runs_nothing(tmp_path: Path) -> None:
    """The epoch that is looked at is that of who asked: a borrower whose aggregate has another owner since is stale."""

    async def scenario() -> None:
        story = Lent(tmp_path)
        host = story.world.start_host(kinds=("sandbox",))
        await story.begin()
        await story.owner.ask(SandboxRequested(sandbox=Inline()))
        await story.owner.ask(SandboxLendRequested(borrower=BORROWER), "h0")
        thaw = asyncio.Event()
        host.buses["sandbox"].frozen = thaw
        late = await story.borrower.say(command("append log late", right=1), "h0")
        await story.borrower.begin()
        thaw.set()
        answer = await story.borrower.answer(late)
        assert isinstance(answer, ToolCallFailed)
        assert answer.failure.kind == "stale"
        assert "verifier v1" in answer.failure.message
        again = await story.borrower.ask(command("append log again", right=1), "h0")
        assert isinstance(again, ToolCallCompleted)
        await story.owner.begin()  # the owner's own epoch is none of the borrower's business
        assert isinstance(await story.borrower.ask(command("cat log", right=1), "h0"), ToolCallCompleted)
        closed = await story.owner.ask(SandboxCloseRequested(), "h0")
        assert isinstance(closed, SandboxDestroyed), "lent or not"
        assert list(story.boxes.left.values()) == [{"log": "again\n"}]
        await story.world.stop()

    run_virtual(scenario())


def test_a_command_that_has_not_begun_when_its_right_ends_is_not_begun(tmp_path: Path) -> None:
    """Asked for before the machine was lent, when there was none yet."""

    async def scenario() -> None:
        story = Lent(tmp_path)
        await story.begin()
        await story.owner.say(SandboxRequested(sandbox=Inline()))
        early = [await story.owner.say(command(f"append log early{n}")) for n in range(2)]
        lending = await story.owner.say(SandboxLendRequested(borrower=BORROWER))
        story.boxes.create_s = 1.0
        story.world.start_host(kinds=("sandbox",))
        assert isinstance(await story.owner.answer(lending), SandboxLent)
        for request in early:
            answer = await story.owner.answer(request)
            assert isinstance(answer, ToolCallFailed)
            assert answer.failure.kind == "not_lent"
        assert isinstance(await story.owner.ask(SandboxCloseRequested(), "h0"), SandboxDestroyed)
        assert list(story.boxes.left.values()) == [{}]
        await story.world.stop()

    run_virtual(scenario())
