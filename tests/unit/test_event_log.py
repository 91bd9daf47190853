"""Claims and appends: every event exists once, every aggregate has one writer, whatever the bus does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Conflict
from gym_bus.codec import Codec
from gym_bus.errors import BusUnavailable, Corrupt, Fenced, StoreFull
from gym_bus.event_log import CLAIM_TRIES, Draft, EventLog, Tail, Writer
from gym_bus.memory_bus import MemoryBus, MemoryServer
from gym_bus.redaction import Redactor
from gym_bus.subjects import AggregateId, aggregate
from schemas.envelope import Envelope
from schemas.events import (
    Claimed,
    RunCancelRequested,
    SandboxLost,
    Snapshot,
    ToolCallCompleted,
    ToolCallLost,
    ToolCallRequested,
)
from tests.support.virtual_time import run_virtual

WHERE = aggregate("r1", "1-0", "harness", "s1")
PATIENCE_S = 20.0


class TickingClock:
    """Wall time that is never twice the same, and the loop's monotonic time."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC)

    def now(self) -> datetime:
        """Return a moment 7.001001 s after the last one."""
        self.at += timedelta(seconds=7, microseconds=1001)
        return self.at

    def monotonic(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()


class Recording(MemoryBus):
    """A bus that remembers what was to be appended, and raises first what `troubles` holds."""

    def __init__(self, server: MemoryServer, user: str) -> None:
        super().__init__(server, user)
        self.sent: list[bytes] = []
        self.troubles: list[Exception] = []

    async def append(self, subject: str, body: bytes, *, fence: str, expected: int) -> int:
        """Remember, then append or raise."""
        self.sent.append(body)
        if self.troubles:
            raise self.troubles.pop(0)
        return await super().append(subject, body, fence=fence, expected=expected)


class Case:
    """One server, and logs of any worker on it."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        self.server = MemoryServer()
        self.codec = Codec(MemoryBlobs(), redactor)
        self.clock = TickingClock()
        self.log = self.log_of("h0.b1")

    def log_of(self, worker: str, user: str = "harness") -> EventLog:
        """Return the log as `worker` sees it."""
        return EventLog(Recording(self.server, user), self.codec, self.clock, worker=worker, patience_s=PATIENCE_S)

    def come_back(self) -> None:
        """End whatever keeps the server from storing."""
        self.server.is_down, self.server.max_messages = False, None

    @property
    def bus(self) -> Recording:
        """Return the first worker's bus."""
        assert isinstance(self.log.bus, Recording)
        return self.log.bus

    @property
    def stored(self) -> list[Envelope]:
        """Return the log."""
        return [self.log.decode(s) for s in self.server.events]

    async def claimed(self) -> Writer:
        """Return the first worker's right to write."""
        writer = await self.log.claim(WHERE, 1, "q")
        assert writer
        return writer


def in_case(scenario: Callable[[Case], Coroutine[Any, Any, None]], redactor: Redactor | None = None) -> Case:
    """Run a scenario in virtual time."""
    made: list[Case] = []

    async def run() -> None:
        made.append(Case(redactor))
        await scenario(made[0])

    run_virtual(run())
    return made[0]


def lost(reason: str = "died") -> SandboxLost:
    return SandboxLost(reason=reason)


def asked(command: str = "true") -> ToolCallRequested:
    return ToolCallRequested(call_id="c", turn=1, index=0, tool="shell", command=command, timeout_s=1)


# -- ids -----------------------------------------------------------------------------------------------------------------------


def id_of(case: Case, where: AggregateId, draft: Draft) -> str:
    return case.log._head(Writer(where, 1, 0, 0, 0), 1, draft).event_id


def test_an_id_depends_on_what_led_to_the_event_and_on_nothing_else() -> None:
    """The same cause in the same aggregate gives the same id, whoever writes it, whenever, and with whatever answer."""

    async def scenario(case: Case) -> None:
        same = {
            id_of(case, WHERE, Draft(lost("a"), "q", "t")),
            id_of(case, WHERE, Draft(lost("b"), "q", "t")),
            id_of(case, WHERE, Draft(lost("a"), "q", "t", place="h1")),
        }
        assert len(same) == 1
        others = [
            id_of(case, WHERE, Draft(lost(), "q")),
            id_of(case, WHERE, Draft(lost(), None, "t")),
            id_of(case, WHERE, Draft(lost(), "other", "t")),
            id_of(case, WHERE, Draft(ToolCallLost(request_id="q", reason="a"), "q", "t")),
            id_of(case, WHERE.sibling("harness", "s2"), Draft(lost(), "q", "t")),
            id_of(case, WHERE.sibling("model", "s1"), Draft(lost(), "q", "t")),
            id_of(case, aggregate("r1", "1-1", "harness", "s1"), Draft(lost(), "q", "t")),
            id_of(case, aggregate("r2", "1-0", "harness", "s1"), Draft(lost(), "q", "t")),
        ]
        assert len({*others, *same}) == len(others) + 1

    in_case(scenario)


def test_no_two_claims_have_one_id() -> None:
    """Two workers that believed in the same claim would both write."""

    async def scenario(case: Case) -> None:
        for tries in range(3):
            tail = case.stored[-1].sequence if tries else 0
            assert await case.log.claim(WHERE, 1, "q", Tail(tail, 0))
        assert len({e.event_id for e in case.stored}) == 3

    in_case(scenario)


# -- appending -----------------------------------------------------------------------------------------------------------------


def test_events_are_numbered_without_gaps() -> None:
    """Claims and snapshots do not count; everything else does, also after a takeover."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        await case.log.append(writer, Draft(lost(), "q", "1"))
        await case.log.append(writer, Draft(Snapshot(state={}), None, "1"))
        await case.log.append(writer, Draft(asked(), "q", place="h3"))
        taken = await case.log_of("h1.b1").claim_over(WHERE, 1, "q")
        await case.log_of("h1.b1").append(taken, Draft(lost(), "q", "2"))
        assert [e.ordinal for e in case.stored] == [0, 1, 1, 2, 2, 3]
        assert [e.epoch for e in case.stored] == [0, 1, 1, 1, 0, 5]
        assert case.server.events[3].subject == f"{WHERE.prefix}.cmd.sandbox.h3"

    in_case(scenario)


def test_what_append_returns_is_what_the_log_holds() -> None:
    """Whoever folds the returned event has the state of whoever folds the stored one."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        returned = await case.log.append(writer, Draft(asked("echo 1"), "q", place="h1"))
        assert returned.model_copy(update={"recorded_at": case.stored[-1].recorded_at}) == case.stored[-1]

    in_case(scenario)


def test_what_append_returns_has_the_stored_time() -> None:
    """The time in memory is the time in the log, to the digit."""

    async def scenario(case: Case) -> None:
        returned = await case.log.append(await case.claimed(), Draft(lost(), "q"))
        assert returned.recorded_at == case.stored[-1].recorded_at

    in_case(scenario)


def test_what_append_returns_is_masked_as_the_log_is() -> None:
    """A secret in an answer is unknown to whoever goes on in memory, as it is to whoever takes over from the log."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        said = ToolCallCompleted(
            request_id="q", exit_code=0, output="the key is hunter2-hunter2", output_bytes=26, duration_s=0.1
        )
        returned = await case.log.append(writer, Draft(said, "q"))
        assert returned.data == case.stored[-1].data

    in_case(scenario, Redactor(["hunter2-hunter2"]))


def test_a_lost_acknowledgement_gives_one_event() -> None:
    """Stored and not acknowledged: the retry finds it, nothing is stored twice, the writer goes on."""

    async def scenario(case: Case) -> None:
        case.server.faults.ack_lost = 1.0
        writer = await case.claimed()
        first = await case.log.append(writer, Draft(lost(), "q", "1"))
        second = await case.log.append(writer, Draft(lost(), "q", "2"))
        assert [e.event_id for e in case.stored[1:]] == [first.event_id, second.event_id]
        assert [first, second] == case.stored[1:]
        assert (writer.last_sequence, writer.ordinal) == (3, 2)

    in_case(scenario)


def test_a_retry_sends_the_same_bytes() -> None:
    """However often an append is tried, its bytes are those of the first try, the time included."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        case.bus.sent.clear()
        case.bus.troubles = [BusUnavailable("away"), StoreFull("full"), Conflict("busy"), BusUnavailable("away")]
        await case.log.append(writer, Draft(lost(), "q"))
        assert len(case.bus.sent) == 5
        assert len(set(case.bus.sent)) == 1
        assert case.server.events[-1].body == case.bus.sent[0]

    in_case(scenario)


def test_what_is_stored_wins_over_another_answer() -> None:
    """A try that was stored unnoticed is what happened: a later try with another answer returns the stored one."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        case.server.faults.ack_lost = 1.0
        storing = asyncio.ensure_future(case.log.append(writer, Draft(lost("first"), "q")))
        await asyncio.sleep(1)
        storing.cancel()
        await asyncio.sleep(0.1)
        assert len(case.stored) == 2
        found = await case.log.append(writer, Draft(lost("second"), "q"))
        assert found == case.stored[1]
        assert found.data == lost("first")
        assert len(case.stored) == 2

    in_case(scenario)


# -- fences --------------------------------------------------------------------------------------------------------------------


def test_after_a_foreign_claim_nothing_more_is_stored() -> None:
    """The earlier owner is told that it is fenced, at once and every time."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        await case.log_of("h1.b1").claim_over(WHERE, 1, "q")
        for _ in range(2):
            with pytest.raises(Fenced):
                await case.log.append(writer, Draft(lost(), "q"))
        assert [type(e.data) for e in case.stored] == [Claimed, Claimed]

    in_case(scenario)


def test_the_same_event_of_a_later_epoch_is_not_mine() -> None:
    """A fenced worker that reads back its own event id under the new owner's epoch is fenced, not successful."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        other = case.log_of("h1.b1")
        taken = await other.claim_over(WHERE, 1, "q")
        theirs = await other.append(taken, Draft(lost(), "q"))
        with pytest.raises(Fenced):
            await case.log.append(writer, Draft(lost(), "q"))
        assert [e.event_id for e in case.stored].count(theirs.event_id) == 1

    in_case(scenario)


def test_the_same_event_of_an_earlier_epoch_is_no_success() -> None:
    """What an earlier epoch wrote after my claim contradicts the rule: never taken for my own."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        taken = await case.log_of("h1.b1").claim_over(WHERE, 1, "q")
        zombie = Writer(WHERE, 1, writer.epoch, taken.last_sequence, 0)
        await case.log.append(zombie, Draft(lost(), "q"))
        with pytest.raises((Corrupt, Fenced)):
            await case.log_of("h1.b1").append(taken, Draft(lost(), "q"))

    in_case(scenario)


def test_an_unexplained_tail_is_corrupt() -> None:
    """Another event under my own epoch means two writers share one claim."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        twin = Writer(WHERE, 1, writer.epoch, writer.last_sequence, writer.ordinal)
        await case.log.append(twin, Draft(lost(), "q", "the twin's"))
        with pytest.raises(Corrupt, match="two writers"):
            await case.log.append(writer, Draft(lost(), "q", "mine"))

    in_case(scenario)


def test_a_log_that_was_set_back_is_corrupt() -> None:
    """A store restored from before my last event is noticed at the next append."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        await case.log.append(writer, Draft(lost(), "q", "1"))
        await case.log.append(writer, Draft(lost(), "q", "2"))
        for pool in (case.server.events, case.server._by_prefix[WHERE.prefix], case.server._rollouts["r1.1-0"]):
            pool.pop()
        with pytest.raises(Corrupt):
            await case.log.append(writer, Draft(lost(), "q", "3"))

    in_case(scenario)


def test_an_aggregate_that_vanished_is_corrupt() -> None:
    """A store restored from before my claim ends the worker instead of keeping it waiting."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        case.server.events.clear()
        case.server._by_prefix.clear()
        case.server._rollouts.clear()
        async with asyncio.timeout(3 * PATIENCE_S):
            with pytest.raises(Corrupt):
                await case.log.append(writer, Draft(lost(), "q"))

    in_case(scenario)


# -- a bus that is away, or full -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_claim", [False, True])
def test_a_bus_that_comes_back_in_time_costs_only_time(is_claim: bool) -> None:
    """An append waits while the bus is away and is then stored, once."""

    async def scenario(case: Case) -> None:
        writer = None if is_claim else await case.claimed()
        case.server.is_down = True
        asyncio.get_running_loop().call_later(PATIENCE_S / 2, case.come_back)
        await (case.log.append(writer, Draft(lost(), "q")) if writer else case.claimed())
        assert len(case.stored) == (1 if is_claim else 2)

    in_case(scenario)


def test_a_bus_that_stays_away_ends_the_patience() -> None:
    """After the patience the last error is raised: whoever waits is told."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        case.server.is_down = True
        began = asyncio.get_running_loop().time()
        with pytest.raises(BusUnavailable):
            await case.log.append(writer, Draft(lost(), "q"))
        assert PATIENCE_S < asyncio.get_running_loop().time() - began < PATIENCE_S + 10
        assert len(case.server.events) == 1

    in_case(scenario)


def test_a_full_store_is_waited_for_and_told() -> None:
    """While the store refuses, the append waits, says so, and is stored once there is room; for ever full, it is raised."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        told: list[float] = []
        case.log.on_store_full = lambda: told.append(case.clock.monotonic())
        case.server.max_messages = 1
        asyncio.get_running_loop().call_later(PATIENCE_S / 2, case.come_back)
        await case.log.append(writer, Draft(lost(), "q", "1"))
        assert told
        case.server.max_messages = 2
        with pytest.raises(StoreFull):
            await case.log.append(writer, Draft(lost(), "q", "2"))
        assert len(case.server.events) == 2

    in_case(scenario)


def test_waits_between_tries_grow_and_stay_bounded() -> None:
    """A bus that is away is asked more and more seldom, at least every few seconds."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        case.bus.troubles = [BusUnavailable("away")] * 10
        began = case.clock.monotonic()
        await case.log.append(writer, Draft(lost(), "q"))
        assert 8 < case.clock.monotonic() - began < 15

    in_case(scenario)


# -- claims --------------------------------------------------------------------------------------------------------------------


def test_only_one_of_many_claims_what_is_new() -> None:
    """Of workers that claim the same new aggregate at once, one gets it, the others are told."""

    async def scenario(case: Case) -> None:
        claims = [case.log_of(f"h{i}.b1").claim(WHERE, 1, "q") for i in range(5)]
        writers = [w for w in await asyncio.gather(*claims) if w]
        assert len(writers) == 1
        assert len(case.stored) == 1
        assert writers[0].epoch == case.stored[0].sequence

    in_case(scenario)


def test_a_claim_whose_acknowledgement_was_lost_is_mine() -> None:
    """Only my own nonce makes a claim mine."""

    async def scenario(case: Case) -> None:
        case.server.faults.ack_lost = 1.0
        writer = await case.claimed()
        assert writer.epoch == 1
        assert await case.log_of("h1.b1").claim(WHERE, 1, "q") is None

    in_case(scenario)


def test_claiming_over_takes_from_whoever_has_it() -> None:
    """The parent's owner becomes the child's writer, numbered after what is there."""

    async def scenario(case: Case) -> None:
        writer = await case.claimed()
        await case.log.append(writer, Draft(lost(), "q"))
        taken = await case.log_of("h1.b1").claim_over(WHERE, 1, "q")
        assert (taken.epoch, taken.ordinal) == (3, 1)
        with pytest.raises(Fenced):
            await case.log.append(writer, Draft(lost(), "q", "2"))

    in_case(scenario)


def test_a_claim_that_is_always_overtaken_gives_up() -> None:
    """Contention is bounded."""

    async def scenario(case: Case) -> None:
        other = case.log_of("h1.b1")
        real = case.log.last

        async def overtaken(pattern: str) -> Envelope | None:
            tail = await real(pattern)
            await other.claim(WHERE, 1, "q", Tail(tail.sequence, tail.ordinal) if tail else Tail(0, 0))
            return tail

        case.log.last = overtaken  # type: ignore[method-assign]
        with pytest.raises(BusUnavailable, match="contended"):
            await case.log.claim_over(WHERE, 1, "q")
        assert len(case.stored) == CLAIM_TRIES

    in_case(scenario)


# -- events that need no claim -------------------------------------------------------------------------------------------------


def test_the_only_event_of_an_aggregate_is_stored_once() -> None:
    """Asked for twice, the first is returned; another event under the same name is refused."""

    async def scenario(case: Case) -> None:
        log = case.log_of("cli.0", "cli")
        where = aggregate("r1", "_", "cli", "cancel-1")
        first = await log.append_alone(where, 1, Draft(RunCancelRequested(reason="a"), None, place="ctl"))
        again = await log.append_alone(where, 1, Draft(RunCancelRequested(reason="b"), None, place="ctl"))
        assert again == case.stored[0]
        assert again.event_id == first.event_id
        assert again.data == RunCancelRequested(reason="a")
        with pytest.raises(Fenced, match="another event"):
            await log.append_alone(where, 1, Draft(RunCancelRequested(reason="a"), "another cause", place="ctl"))
        assert len(case.stored) == 1

    in_case(scenario)
