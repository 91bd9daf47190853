"""Any order of faults: runs started and cancelled, hosts and the bus killed or frozen, deliveries doubled; then all must hold.

Hypothesis chooses what happens and when, always the same way in CI; a failure is shrunk to the fewest steps that show it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from actors.collector.room import Room
from schemas.config import Retries, ScriptedModel
from schemas.events import RunCancelRequested, RunFinished
from schemas.sandboxes import Inline
from tests.support.checks import check_ledger, check_log, final_table
from tests.support.invariants import check_invariants
from tests.support.virtual_time import VirtualTimeLoop
from tests.support.world import SimHost, World, config, read_ledger

T = TypeVar("T")
HOSTS = ("h0", "h1", "h2")
MOST_RUNS = 2
TASKS = 3
ANY_HOST = st.sampled_from(HOSTS)
SHARES = st.sampled_from([0.0, 0.1, 0.5])


class Chaos(RuleBasedStateMachine):
    """A world in virtual time, and what may happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.ledger = Path(self.directory.name) / "ledger"
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.frozen: dict[str, asyncio.Event] = {}
        self.cancels = 0
        self.runs: list[str] = []
        self.world = self.do(self._begin())

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the world's loop; everything else there goes on meanwhile."""
        return self.runner.run(work)

    async def _begin(self) -> World:
        world = World(tasks=TASKS, ledger=self.ledger)
        world.start_host("h0")
        await asyncio.sleep(0.01)
        return world

    def living(self, host_id: str) -> SimHost | None:
        """Return the host if it lives."""
        host = self.world.hosts.get(host_id)
        return host if host and not host.is_dead else None

    @property
    def has_room(self) -> bool:
        """Say whether the store takes events: with a full one the command line fails, and nothing has been asked for."""
        return self.world.server.max_messages is None

    # -- what may happen -------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.003, 0.05, 0.4, 1.7, 6.0]))
    def time_passes(self, seconds: float) -> None:
        """Nothing special happens for a while."""
        self.do(asyncio.sleep(seconds))

    @precondition(lambda self: self.has_room and len(self.runs) < MOST_RUNS)
    @rule(
        latency_s=st.sampled_from([0.0, 0.3, 2.0]),
        failure_rate=st.sampled_from([0.0, 0.4]),
        max_tries=st.integers(1, 3),
    )
    def another_run_is_asked_for(self, latency_s: float, failure_rate: float, max_tries: int) -> None:
        """While the first one is going on, or after it."""
        self._ask(latency_s, failure_rate, max_tries)

    @initialize(latency_s=st.sampled_from([0.1, 0.6, 2.0]), failure_rate=st.just(0.4), max_tries=st.integers(1, 3))
    def a_run_is_asked_for(self, latency_s: float, failure_rate: float, max_tries: int) -> None:
        """There is always something to disturb."""
        self._ask(latency_s, failure_rate, max_tries)

    def _ask(self, latency_s: float, failure_rate: float, max_tries: int) -> None:
        """Ask for three tasks, twice each, on a model that may be slow and may fail."""
        run_id = f"r{len(self.runs)}"
        self.runs.append(run_id)
        model = ScriptedModel(
            seed=len(self.runs),
            latency_s=latency_s,
            failure_rate=failure_rate,
            malformed_rate=0.2,
            max_tries=max_tries,
            ledger_path=str(self.ledger),
        )
        wanted = config(
            model=model,
            sandbox=Inline(ledger_path=str(self.ledger)),
            retries=Retries(max_attempts=2, backoff_s=0.5),
            num_repeats=2,
            num_samples_in_parallel=4,
        )
        self.do(self.world.request_run(run_id, wanted))

    @precondition(lambda self: self.has_room and self.cancels < MOST_RUNS)
    @rule(data=st.data())
    def a_run_is_cancelled(self, data: st.DataObject) -> None:
        """Early, late, or after its end."""
        self.cancels += 1
        run_id = data.draw(st.sampled_from(self.runs))
        self.do(self.world.control(run_id, RunCancelRequested(reason="enough"), str(self.cancels)))

    @rule(host_id=ANY_HOST)
    def a_host_is_killed(self, host_id: str) -> None:
        """With everything in its memory, also while it is frozen."""
        if host := self.living(host_id):
            self.do(_killed(host))
            self.frozen.pop(host_id, None)

    @rule(host_id=ANY_HOST)
    def a_host_starts(self, host_id: str) -> None:
        """For the first time or again; a host that lives is left alone: its lock is held."""
        if self.living(host_id) is None:
            self.do(self._started(host_id))

    async def _started(self, host_id: str) -> None:
        self.world.start_host(host_id)
        await asyncio.sleep(0.002)

    @rule(host_id=ANY_HOST)
    def a_host_freezes(self, host_id: str) -> None:
        """It gets no answer from the bus until it thaws."""
        host = self.living(host_id)
        if host and host_id not in self.frozen:
            self.frozen[host_id] = asyncio.Event()
            for bus in host.buses.values():
                bus.frozen = self.frozen[host_id]

    @precondition(lambda self: self.frozen)
    @rule()
    def the_frozen_thaw(self) -> None:
        """They go on where they stood, as if nothing had been."""
        self.do(self._thawed())

    async def _thawed(self) -> None:
        for thaw in self.frozen.values():
            thaw.set()
        self.frozen.clear()

    @rule()
    def the_bus_is_killed(self) -> None:
        """What was handed out and not acknowledged is handed out again at once."""
        self.do(_kill_bus(self.world))

    @rule(ack_lost=SHARES, live_lost=SHARES, delivered_twice=SHARES)
    def the_network_changes(self, ack_lost: float, live_lost: float, delivered_twice: float) -> None:
        """Acknowledgements and live messages are lost, requests delivered twice, from now on."""
        faults = self.world.server.faults
        faults.ack_lost, faults.live_lost, faults.delivered_twice = ack_lost / 5, live_lost, delivered_twice

    @rule(is_full=st.booleans(), is_refusing=st.booleans())
    def the_store_changes(self, is_full: bool, is_refusing: bool) -> None:
        """It refuses every event, or so many that nothing new is started, or has room again."""
        self.world.server.max_messages = len(self.world.server.events) if is_full and self.runs else None
        self.world.room = Room(0, "the store is nearly full") if is_refusing else Room()

    # -- and what must hold ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Let it become quiet; then every run ends, and the log and the outside ledger say the same."""
        try:
            self.do(self._quiet())
            events = self.world.events()
            check_log(events)
            check_ledger(events, read_ledger(self.ledger))
            check_invariants(self.world)
            finished = {e.run_id: e.data for e in events if isinstance(e.data, RunFinished)}
            assert set(finished) == set(self.runs)
            for run_id, end in finished.items():
                counted = len(final_table([e for e in events if e.run_id == run_id]))
                assert end.planned == 2 * TASKS == end.scored + end.failed + end.masked + end.missing
                assert end.state == "cancelled" or counted == end.planned
        finally:
            self.do(self.world.stop())
            self.runner.close()
            self.directory.cleanup()

    async def _quiet(self) -> None:
        faults = self.world.server.faults
        faults.ack_lost = faults.live_lost = faults.delivered_twice = 0.0
        self.world.server.max_messages = None
        self.world.room = Room()
        await self._thawed()
        for host_id in ("h0", "h1"):
            if self.living(host_id) is None:
                self.world.start_host(host_id)
        for run_id in self.runs:
            await self.world.finished(run_id, 300)
        await self.world.quiet(300)


async def _killed(host: SimHost) -> None:
    host.kill()
    await asyncio.sleep(0.002)


async def _kill_bus(world: World) -> None:
    world.server.kill()


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    derandomize=True,
    deadline=None,
    max_examples=30,
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
