"""`eval resume` is told what the actors themselves would find: the projection's resume state against their own recovery."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest

from actors.collector.conductor import Conductor, rollouts_of
from actors.collector.plan import Planned
from actors.collector.rollout import RolloutMachine
from actors.collector.run import RunMachine, RunState
from gym_bus import boundary
from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from gym_bus.codec import Codec
from gym_bus.event_log import EventLog
from gym_bus.memory_bus import MemoryBus, MemoryServer
from gym_bus.subjects import parse_event, run_aggregate
from projections import queries, resume_state_of, violations
from projections.resume import RunResume
from schemas.base import Answer
from schemas.config import Retries, ScriptedModel
from schemas.envelope import Envelope
from schemas.events import RolloutFinished, RunFinished, RunRequested
from schemas.ids import RUN_LEVEL
from tests.support.checks import check_log, final_table
from tests.support.logs import RUN, project
from tests.support.virtual_time import run_virtual
from tests.support.world import LoopClock, SimHost, World, config, kill_at

KILLS: list[tuple[str, int]] = [
    ("collector.received", 1),
    ("collector.claimed", 4),
    ("collector.append_sent", 9),
    ("collector.appended", 14),
    ("collector.result_appended", 1),
    ("harness.received", 3),
    ("harness.appended", 11),
    ("model.append_sent", 7),
    ("model.effect_done", 9),
    ("sandbox.effect_done", 5),
    ("sandbox.before_ack", 6),
    ("verifier.appended", 3),
    ("verifier.acked", 3),
    ("collector.fact_received", 12),
]


@dataclass(frozen=True)
class Moment:
    """The log at one moment, and its blobs."""

    stored: list[Stored]
    blobs: MemoryBlobs

    @property
    def events(self) -> list[Envelope]:
        """Return the decoded log."""
        codec = Codec(self.blobs)
        return [codec.decode(s.subject, s.body, s.sequence) for s in self.stored]


async def run_killed(name: str, nth: int) -> tuple[Moment, Moment]:
    """Run twelve rollouts, of which some need another attempt; return the log when the host was killed, and at the end."""
    world = World(tasks=4)
    at_kill: list[Stored] = []

    def come_back(host: SimHost) -> None:
        at_kill.extend(world.server.events)
        asyncio.get_running_loop().call_later(0.3, world.start_host, host.host_id, host.kinds)

    kill_at(world, [(name, nth)], come_back)
    try:
        world.start_host()
        model = ScriptedModel(error_rate=0.3, failure_rate=0.3, latency_s=0.2, max_tries=1)
        retries = Retries(max_attempts=3, backoff_s=0.4)
        await world.request_run(
            RUN, config(model=model, retries=retries, num_repeats=3, num_samples_in_parallel=6, ramp_per_s=10)
        )
        await world.finished(RUN, 300)
        await world.quiet(100)
    finally:
        boundary.install(None)
        await world.stop()
    assert at_kill, f"{name} was not reached {nth} times"
    check_log(world.events())
    return Moment(at_kill, world.blobs), Moment(list(world.server.events), world.blobs)


@cache
def moments(name: str, nth: int) -> tuple[Moment, Moment]:
    """Return the log when the host was killed, and at the end."""
    return run_virtual(run_killed(name, nth))


# -- what the actors find ------------------------------------------------------------------------------------------------------


def run_state_of(events: list[Envelope]) -> RunState:
    """Fold the run as its next owner would."""
    requested = next(e for e in events if isinstance(e.data, RunRequested))
    state = RunMachine().begin(requested)
    for event in events:
        if event.rollout_id == RUN_LEVEL:
            state = RunMachine().evolve(state, event)
    return state


async def recovered(moment: Moment, state: RunState) -> Conductor:
    """Have a conductor recover from the log, as the run's next owner does."""
    server = MemoryServer()
    for s in moment.stored:
        prefix = parse_event(s.subject).aggregate.prefix
        tail = server.last_under(prefix)
        assert server.append(s.subject, s.body, prefix, tail.sequence if tail else 0) == s.sequence
    clock = LoopClock()
    log = EventLog(MemoryBus(server, "collector"), Codec(moment.blobs), clock, worker="h9.b9", patience_s=1)
    assert state.started
    rollouts = rollouts_of(moment.blobs.get(state.started.plan), state.request.config)
    drive: Any = SimpleNamespace(state=state, aggregate=run_aggregate(RUN))
    shell: Any = SimpleNamespace(log=log, clock=clock)

    async def nothing_refused() -> str | None:
        return None

    conductor = Conductor(shell, drive, lambda _: None, nothing_refused, rollouts)
    await conductor.recover()
    return conductor


def stage_of(planned: Planned, attempt: int, events: list[Envelope], state: RunState) -> str | None:
    """Fold an open attempt as its next owner would; None if it has been claimed and nothing more."""
    machine = RolloutMachine(planned.task, planned.repeat, state.request.config, attempt=attempt, failures=0, cause="x")
    known = machine.first
    for event in events:
        if (event.rollout_id, event.attempt) == (planned.rollout_id, attempt):
            known = machine.evolve(known, event)
    if known.session_id is None:
        return None
    return "verdict" if known.evidence else "session"


Open = dict[str, tuple[int, str, int, Any]]


def found_by_actors(moment: Moment, state: RunState) -> tuple[set[str], Open]:
    """Return what is over, and for what is open its attempt, stage, counted failures and when it is due."""
    conductor = run_virtual(recovered(moment, state))
    events = moment.events
    done = {p.rollout_id for i, p in enumerate(conductor.rollouts) if conductor._is_done(i)}
    begun: Open = {}
    for index, course in conductor._courses.items():
        planned = conductor.rollouts[index]
        stage = stage_of(planned, course.attempt, events, state) if course.is_open else None
        if stage:
            begun[planned.rollout_id] = (course.attempt, stage, course.failures, None)
        elif course.attempt > 1:
            begun[planned.rollout_id] = (course.attempt, "retry", course.failures, last_retry(events, planned))
    return done, begun


def without_zone(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=None) if at else None


def last_retry(events: list[Envelope], planned: Planned) -> Any:
    ends = [e.data for e in events if isinstance(e.data, RolloutFinished) and e.rollout_id == planned.rollout_id]
    return ends[-1].retry_at.replace(tzinfo=None)


def open_requests(events: list[Envelope], rollout_id: str) -> list[str]:
    """Return the types of a rollout's requests that nobody has answered."""
    answered = {e.data.request_id for e in events if isinstance(e.data, Answer)}
    asked = [e for e in events if e.rollout_id == rollout_id and e.data.TO and e.event_id not in answered]
    return sorted(e.type for e in asked)


# -- and the projection --------------------------------------------------------------------------------------------------------


def check_resume(moment: Moment) -> RunResume:
    """Compare the projection of a log with what the actors find in it."""
    connection = project(moment.stored, moment.blobs)
    assert violations(connection) == {}
    resume = resume_state_of(connection, RUN)
    events = moment.events
    state = run_state_of(events)
    assert resume.state == ("finished" if any(isinstance(e.data, RunFinished) for e in events) else "open")
    assert {k: (v.state, v.reward) for k, v in resume.finished.items()} == final_table(events)
    if state.started is None:
        assert (resume.planned, resume.open) == (0, {})
        return resume
    assert resume.planned == state.started.planned == 12
    done, begun = found_by_actors(moment, state)
    assert set(resume.finished) == done
    assert {k: (v.attempt, v.stage, v.failures, without_zone(v.retry_at)) for k, v in resume.open.items()} == begun
    for rollout_id, found in resume.open.items():
        asked_of_actors = [t for t in found.open_requests if not t.startswith("model_call")]
        assert sorted(asked_of_actors) == open_requests(events, rollout_id)
    return resume


@pytest.mark.parametrize(("name", "nth"), KILLS)
def test_the_resume_state_is_what_the_next_owner_finds(name: str, nth: int) -> None:
    """At the moment of a kill and at the end: finished, open with attempt and stage, due; and the invariants hold on both logs."""
    at_kill, at_end = moments(name, nth)
    check_resume(at_kill)
    resume = check_resume(at_end)
    assert (len(resume.finished), resume.open) == (12, {})


def test_when_a_retry_is_due_is_a_moment_in_utc() -> None:
    """The time of the projection is the time of the event."""
    moment, _ = moments("model.effect_done", 9)
    resume = resume_state_of(project(moment.stored, moment.blobs), RUN)
    due = {found.retry_at for found in resume.open.values() if found.retry_at}
    assert due <= {e.data.retry_at for e in moment.events if isinstance(e.data, RolloutFinished)}


def test_the_kills_meet_every_stage() -> None:
    """Between them the moments hold rollouts in a session, at the verdict, due again, finished and not begun."""
    met: set[str] = set()
    for name, nth in KILLS:
        moment = moments(name, nth)[0]
        state = run_state_of(moment.events)
        if state.started is None:
            met.add("not started")
            continue
        done, begun = found_by_actors(moment, state)
        met |= {stage for _, stage, _, _ in begun.values()}
        met |= {"finished"} if done else set()
        met |= {"not begun"} if len(done) + len(begun) < state.started.planned else set()
    assert met == {"not started", "not begun", "session", "verdict", "retry", "finished"}
    assert queries.names("invariants"), "there is something to hold"
