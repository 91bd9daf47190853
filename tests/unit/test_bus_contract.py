"""What every bus promises, held against the one in memory and a real server (`gym_bus.bus`)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from gym_bus.bus import Bus, Conflict, Delivery, Slots, Stored
from gym_bus.errors import BusRefused, BusUnavailable
from gym_bus.memory_bus import Faults, MemoryBus, MemoryServer
from gym_bus.nats_bus import connect
from gym_bus.provision import ensure_consumer, provision
from gym_bus.server import BusAddress, EmbeddedServer
from gym_bus.topology import queue_stream
from schemas.ids import WORKER_KINDS

# The server outlives whoever started it, on purpose: Popen complains about that when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")

ACK_WAIT_S = 0.6
SOON_S = 5.0
A_WHILE_S = 0.15
HOST = "h7"
_numbers = itertools.count(1)


@dataclass
class Place:
    """A server, memory or real, and a run of its own on it."""

    run: str
    stack: AsyncExitStack
    memory: MemoryServer | None = None
    address: BusAddress | None = None

    async def bus(self, user: str) -> Bus:
        """Return a client for `user`."""
        if self.memory:
            return MemoryBus(self.memory, user)
        assert self.address
        return await self.stack.enter_async_context(connect(self.address.url, user, self.address.passwords[user]))

    def prefix(self, actor: str = "harness", key: str = "s1", rollout: str = "1-0") -> str:
        """Return the prefix of an aggregate of this test's own run."""
        return f"gym.evt.0.{self.run}.{rollout}.{actor}.{key}"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[BusAddress]:
    server = EmbeddedServer(tmp_path_factory.mktemp("bus"))
    yield server.ensure()
    server.stop(kill=True)


@pytest.fixture(params=["memory", "nats"])
async def place(request: pytest.FixtureRequest) -> AsyncGenerator[Place]:
    run = f"r{next(_numbers)}"
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield Place(run, stack, memory=MemoryServer(ack_wait_s=ACK_WAIT_S))
            return
        found: BusAddress = request.getfixturevalue("address")
        async with connect(found.url, "admin", found.passwords["admin"]) as admin:
            await provision(admin, shards=1, max_bytes=256 * 1024**2, ack_wait_s=ACK_WAIT_S)
            await ensure_consumer(admin, "sandbox", HOST, ACK_WAIT_S)
            for kind in WORKER_KINDS:  # what earlier tests have left there
                await admin.api(f"STREAM.PURGE.{queue_stream(kind)}")
        yield Place(run, stack, address=found)


async def put(bus: Bus, prefix: str, kind: str = "session_closed", body: bytes = b"{}", expected: int = 0) -> int:
    """Append to the aggregate `prefix`."""
    return await bus.append(f"{prefix}.{kind}", body, fence=prefix, expected=expected)


async def all_of(events: AsyncIterator[Stored]) -> list[Stored]:
    """Return what is read."""
    return [stored async for stored in events]


# -- appending -----------------------------------------------------------------------------------------------------------------


async def test_the_first_event_is_expected_at_zero(place: Place) -> None:
    """A new aggregate takes an event that expects none before it, and returns its sequence."""
    bus = await place.bus("harness")
    first = await put(bus, place.prefix(), body=b'{"x":1}')
    assert await bus.last(f"{place.prefix()}.>") == Stored(f"{place.prefix()}.session_closed", b'{"x":1}', first)


async def test_sequences_rise_and_are_shared_by_all_aggregates(place: Place) -> None:
    """There is one order over everything that is stored."""
    bus = await place.bus("harness")
    found = [await put(bus, place.prefix(key=f"s{i}")) for i in range(5)]
    assert found == sorted(set(found))


@pytest.mark.parametrize("off_by", [-1, 1])
async def test_a_wrong_expected_sequence_is_a_conflict(place: Place, off_by: int) -> None:
    """Nothing is stored under a wrong expectation, too low or too high, and the right one still works."""
    bus = await place.bus("harness")
    first = await put(bus, place.prefix())
    with pytest.raises(Conflict):
        await put(bus, place.prefix(), expected=first + off_by)
    with pytest.raises(Conflict):
        await put(bus, place.prefix(), expected=0)
    second = await put(bus, place.prefix(), expected=first)
    assert [s.sequence for s in await all_of(bus.read(f"{place.prefix()}.>"))] == [first, second]


async def test_another_subject_of_the_aggregate_fences(place: Place) -> None:
    """A claim by somebody else refuses the earlier owner's events, whatever their subjects; other aggregates go on."""
    bus, other = await place.bus("harness"), await place.bus("harness")
    mine = await put(bus, place.prefix(), "claim")
    await put(other, place.prefix(), "claim", expected=mine)
    for kind in ("session_closed", "cmd.sandbox.any", "claim"):
        with pytest.raises(Conflict):
            await put(bus, place.prefix(), kind, expected=mine)
    await put(bus, place.prefix(key="s2"), "claim")


async def test_of_many_at_once_one_wins(place: Place) -> None:
    """Appends that expect the same are decided by the server: exactly one is stored."""
    buses = [await place.bus("harness") for _ in range(4)]
    results = await asyncio.gather(*(put(b, place.prefix(), "claim") for b in buses * 5), return_exceptions=True)
    assert len([r for r in results if isinstance(r, int)]) == 1
    assert all(isinstance(r, int | Conflict) for r in results)


@pytest.mark.parametrize(
    "subject",
    [
        "gym.evt.0.{run}.1-0.collector._.claim",
        "gym.evt.0.{run}.1-0.sandbox.b1.cmd.verifier.any",
        "gym.evt.0.{run}.1-0.harness.s1.cmd.collector.any",
        "gym.evt.0.{run}.1-0.harness.s1.cmd.harness.any",
        "gym.cmd.harness.any.0.{run}.1-0.collector._",
        "gym.cmd.sandbox.any.0.{run}.1-0.harness.s1",
    ],
)
async def test_what_a_user_may_not_write_fails_at_once(place: Place, subject: str) -> None:
    """Another kind's fact, a request to who may not be asked, a queue: refused without a wait, and the client works on."""
    bus = await place.bus("harness")
    began = asyncio.get_running_loop().time()
    with pytest.raises(BusRefused, match="may not publish"):
        await bus.append(subject.format(run=place.run), b"{}", fence=place.prefix("collector", "_"), expected=0)
    assert asyncio.get_running_loop().time() - began < 0.5
    assert await all_of(bus.read(f"gym.evt.0.{place.run}.>")) == []
    await put(bus, place.prefix())


# -- reading -------------------------------------------------------------------------------------------------------------------


async def test_nothing_is_read_where_nothing_is(place: Place) -> None:
    """An empty aggregate has no last event and no events."""
    bus = await place.bus("collector")
    assert await bus.last(f"{place.prefix()}.>") is None
    assert await all_of(bus.read(f"{place.prefix()}.>")) == []
    assert await all_of(bus.read(f"{place.prefix()}.>", latest=True)) == []


async def test_patterns_pick_what_they_say(place: Place) -> None:
    """`*` stands for one token and `>` for the rest, in `read` and in `last`; `after` leaves out what is known."""
    bus = await place.bus("harness")
    found = {}
    for rollout, key in (("1-0", "s1"), ("1-0", "s2"), ("2-0", "s1")):
        prefix = place.prefix(key=key, rollout=rollout)
        claim = await put(bus, prefix, "claim")
        found[rollout, key] = [claim, await put(bus, prefix, "session_closed", expected=claim)]
    run = f"gym.evt.0.{place.run}"

    async def sequences(pattern: str, after: int = 0) -> list[int]:
        return [s.sequence for s in await all_of(bus.read(pattern, after=after))]

    everything = sorted(itertools.chain(*found.values()))
    assert await sequences(f"{run}.>") == everything
    assert await sequences(f"{run}.>", everything[2]) == everything[3:]
    assert await sequences(f"{run}.>", everything[-1]) == []
    assert await sequences(f"{run}.1-0.>") == everything[:4]
    assert await sequences(f"{run}.*.harness.s1.>") == [*found["1-0", "s1"], *found["2-0", "s1"]]
    assert await sequences(f"{run}.*.harness.*.claim") == [claims[0] for claims in found.values()]
    assert await sequences(f"{run}.1-0.harness.s2.session_closed") == [found["1-0", "s2"][1]]
    for pattern, expected in ((f"{run}.1-0.>", everything[3]), (f"{run}.*.harness.*.claim", everything[4])):
        last = await bus.last(pattern)
        assert last
        assert last.sequence == expected


async def test_many_pages_are_read_whole_and_in_order(place: Place) -> None:
    """More than two pages: every event once, in order, from wherever one starts."""
    bus = await place.bus("harness")
    sequences = [0]
    for i in range(620):
        sequences.append(await put(bus, place.prefix(), body=b"%d" % i, expected=sequences[-1]))
    pattern = f"{place.prefix()}.>"
    read = await all_of(bus.read(pattern))
    assert [(s.sequence, s.body) for s in read] == [(n, b"%d" % i) for i, n in enumerate(sequences[1:])]
    assert await all_of(bus.read(pattern, after=sequences[300])) == read[300:]
    assert [s.sequence for s in await all_of(bus.read(pattern, latest=True))] == [sequences[-1]]


async def test_latest_gives_the_newest_of_each_subject(place: Place) -> None:
    """One event a subject, in order, and none that is known already."""
    bus = await place.bus("harness")
    tail = 0
    for i, kind in enumerate(("claim", "sandbox_requested", "claim", "session_closed", "sandbox_requested")):
        tail = await put(bus, place.prefix(), kind, b"%d" % i, expected=tail)
    pattern = f"gym.evt.0.{place.run}.1-0.>"
    assert [s.body for s in await all_of(bus.read(pattern, latest=True))] == [b"2", b"3", b"4"]
    assert [s.body for s in await all_of(bus.read(pattern, latest=True, after=tail - 1))] == [b"4"]


# -- queues --------------------------------------------------------------------------------------------------------------------


class Worker:
    """Takes requests of one kind at one place, as the runtime does, and lets a test look at each delivery."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.arrived: asyncio.Queue[Delivery] = asyncio.Queue()

    async def next(self, within_s: float = SOON_S) -> Delivery:
        """Return the next delivery."""
        return await asyncio.wait_for(self.arrived.get(), within_s)

    async def nothing(self, for_s: float = A_WHILE_S) -> None:
        """Let time pass, in which nothing may arrive."""
        with pytest.raises(TimeoutError):
            await self.next(for_s)


@asynccontextmanager
async def working(bus: Bus, kind: str = "sandbox", at: str = "any", capacity: int = 10) -> AsyncGenerator[Worker]:
    """Take requests while the context is open."""
    worker = Worker(Slots(capacity))
    task = asyncio.create_task(bus.work(kind, at, worker.slots, worker.arrived.put_nowait))
    try:
        yield worker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(place: Place, *, at: str = "any", count: int = 1, key: str = "s") -> list[Stored]:
    """Have the harness ask the sandbox at a place; return the requests as they are stored."""
    bus = await place.bus("harness")
    asked = []
    for i in range(count):
        prefix = place.prefix(key=f"{key}{i}")
        body = b'{"n":%d}' % i
        sequence = await put(bus, prefix, f"cmd.sandbox.{at}", body)
        asked.append(Stored(f"{prefix}.cmd.sandbox.{at}", body, sequence))
    return asked


@pytest.mark.parametrize("at", ["any", "ctl", HOST])
async def test_a_request_is_handed_out_at_its_place(place: Place, at: str) -> None:
    """Who works at a place gets what was addressed there, as the event it is in the log, and nothing else."""
    bus = await place.bus("sandbox")
    for other in {"any", "ctl", HOST} - {at}:
        await ask(place, at=other, key=f"at-{other}")
    asked = await ask(place, at=at, count=3)
    async with working(bus, at=at) as worker:
        assert [(await worker.next()).stored for _ in asked] == asked
        await worker.nothing()
    assert worker.slots.taken == 3


async def test_only_free_slots_are_filled(place: Place) -> None:
    """A worker is never handed more than it has room for, and is handed the next as soon as there is room."""
    await ask(place, count=5)
    async with working(await place.bus("sandbox"), capacity=2) as worker:
        held = [await worker.next(), await worker.next()]
        await worker.nothing()
        assert worker.slots.free == 0
        held[0].ack()
        worker.slots.give()
        held.append(await worker.next())
        await worker.nothing()
        for delivery in held:
            delivery.ack()
            worker.slots.give()
        rest = [await worker.next(), await worker.next()]
        assert len({d.stored.sequence for d in (*held, *rest)}) == 5


async def test_two_workers_share_a_queue(place: Place) -> None:
    """Each request goes to one of them."""
    asked = await ask(place, count=8)
    async with (
        working(await place.bus("sandbox"), capacity=4) as one,
        working(await place.bus("sandbox"), capacity=4) as two,
    ):
        found = [(await w.next()).stored.sequence for w in (one, two) for _ in range(4)]
    assert sorted(found) == [s.sequence for s in asked]


async def test_what_is_not_acknowledged_comes_again(place: Place) -> None:
    """After `ack_wait`, not before, and as often as it takes."""
    asked = await ask(place)
    loop = asyncio.get_running_loop()
    async with working(await place.bus("sandbox")) as worker:
        for _ in range(2):
            assert (await worker.next()).stored == asked[0]
            began = loop.time()
            await worker.nothing(ACK_WAIT_S * 0.7)
        assert (await worker.next()).stored == asked[0]
        assert loop.time() - began < ACK_WAIT_S * 3


async def test_in_progress_holds_the_redelivery_off(place: Place) -> None:
    """A long request stays where it is as long as its holder says so, and no longer."""
    await ask(place)
    async with working(await place.bus("sandbox")) as worker:
        delivery = await worker.next()
        for _ in range(3):
            await worker.nothing(ACK_WAIT_S * 0.6)
            delivery.in_progress()
        await worker.next(ACK_WAIT_S * 3)


async def test_later_gives_back_for_a_while(place: Place) -> None:
    """A request that was given back comes again after the delay, long before `ack_wait`."""
    asked = await ask(place)
    async with working(await place.bus("sandbox")) as worker:
        (await worker.next()).later(0.3)
        await worker.nothing(0.2)
        assert (await worker.next(ACK_WAIT_S * 0.7)).stored == asked[0]


async def test_acknowledged_is_over(place: Place) -> None:
    """An acknowledged request never comes again, to nobody."""
    await ask(place, count=2)
    async with working(await place.bus("sandbox")) as worker:
        for _ in range(2):
            (await worker.next()).ack()
        await worker.nothing(ACK_WAIT_S * 1.5)
    async with working(await place.bus("sandbox")) as worker:
        await worker.nothing()


async def test_requests_wait_for_a_worker(place: Place) -> None:
    """What nobody takes stays, in order; what was held by a worker that ended comes again."""
    asked = await ask(place, count=3)
    async with working(await place.bus("sandbox"), capacity=1) as worker:
        await worker.next()
    async with working(await place.bus("sandbox")) as worker:
        found = [(await worker.next()).stored.sequence for _ in asked]
    assert sorted(found) == [s.sequence for s in asked]


async def test_a_refused_request_is_in_no_queue(place: Place) -> None:
    """What the log refused is not worked on."""
    bus = await place.bus("harness")
    claim = await put(bus, place.prefix(), "claim")
    with pytest.raises(Conflict):
        await put(bus, place.prefix(), "cmd.sandbox.any")
    async with working(await place.bus("sandbox")) as worker:
        await worker.nothing()
        await put(bus, place.prefix(), "cmd.sandbox.any", expected=claim)
        assert (await worker.next()).stored.sequence > claim


# -- live ----------------------------------------------------------------------------------------------------------------------


async def test_listening_hears_what_is_stored_and_nothing_else(place: Place) -> None:
    """Stored events, each with its own sequence and in order; refused appends and other subjects are not heard."""
    listener, writer = await place.bus("collector"), await place.bus("harness")
    heard: asyncio.Queue[Stored] = asyncio.Queue()
    async with listener.listen("gym.live.*.*.*.harness.*.session_closed", heard.put_nowait):
        await listener.last(f"{place.prefix()}.>")  # a round trip: the server knows of the subscription
        first = await put(writer, place.prefix(), body=b"1")
        with pytest.raises(Conflict):
            await put(writer, place.prefix(), body=b"refused")
        claim = await put(writer, place.prefix(), "claim", expected=first)
        second = await put(writer, place.prefix(), body=b"2", expected=claim)
        subject = f"{place.prefix()}.session_closed"
        found = [await asyncio.wait_for(heard.get(), SOON_S) for _ in range(2)]
        assert found == [Stored(subject, b"1", first), Stored(subject, b"2", second)]
    await put(writer, place.prefix(), body=b"3", expected=second)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(heard.get(), A_WHILE_S)


async def test_what_is_told_is_heard_and_not_kept(place: Place) -> None:
    """A heartbeat reaches whoever hears at that moment, every one of them, and is in no log."""
    teller, hearers = await place.bus("harness"), [await place.bus("collector"), await place.bus("sandbox")]
    heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        await teller.tell("gym.hb.harness.h0", b"nobody listens")
        await teller.last(f"{place.prefix()}.>")
        for hearer in hearers:
            await stack.enter_async_context(hearer.hear("gym.hb.>", lambda *told: heard.put_nowait(told)))
            await hearer.last(f"{place.prefix()}.>")
        await teller.tell("gym.hb.harness.h0", b"h0.b1")
        for _ in hearers:
            assert await asyncio.wait_for(heard.get(), SOON_S) == ("gym.hb.harness.h0", b"h0.b1")
    assert await all_of(teller.read(f"gym.evt.0.{place.run}.>")) == []


# -- faults of the one in memory -----------------------------------------------------------------------------------------------


async def test_memory_can_lose_an_acknowledgement() -> None:
    """Stored, and the writer is told that nobody answered: as a killed server does."""
    server = MemoryServer(faults=Faults(ack_lost=1.0))
    bus = MemoryBus(server, "harness")
    with pytest.raises(BusUnavailable):
        await put(bus, "gym.evt.0.r1.1-0.harness.s1")
    assert len(server.events) == 1
    with pytest.raises(Conflict):
        await put(bus, "gym.evt.0.r1.1-0.harness.s1")


async def test_memory_hands_out_again_after_a_kill() -> None:
    """A restarted server forgets who held what, and what it is told about earlier deliveries."""
    server = MemoryServer(ack_wait_s=60)
    place = Place("r1", AsyncExitStack(), memory=server)
    await ask(place)
    async with working(await place.bus("sandbox")) as worker:
        early = await worker.next()
        server.kill()
        late = await worker.next()
        early.ack()
        assert server.pending() == 1
        late.ack()
        assert server.pending() == 0
