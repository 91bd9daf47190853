"""What holds for every machine: total, deterministic, indifferent to repeats, and nothing is stated twice, wherever the log ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.collector.run import RunMachine
from actors.harness.session import SessionMachine
from schemas.envelope import Envelope
from schemas.events import ModelCallRequested, RunPaused, Snapshot
from schemas.values import Failure
from tests.support.examples import EXAMPLES, example
from tests.support.histories import NAMES, Life, history, lives

MACHINES = ("RunMachine", "RolloutMachine", "SessionMachine", "BoxMachine", "VerdictMachine")
LATER = timedelta(days=9)
BROKEN = Failure(kind="internal", message="broken")


def lives_of(name: str, machine: str) -> list[Life]:
    return [life for life in lives(name) if type(life.machine).__name__ == machine]


def is_known_fault(life: Life, event: Envelope) -> bool:
    """Say whether a repeat of `event` is one of the two that are known to be folded twice (each has a test below)."""
    stale_try = isinstance(life.machine, SessionMachine) and isinstance(event.data, ModelCallRequested)
    return stale_try or (isinstance(life.machine, RunMachine) and isinstance(event.data, RunPaused))


# -- over whole logs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_histories_hold_what_they_are_for(name: str) -> None:
    """Each history has met what it is named after, and has aggregates of every machine."""
    met = {
        "failing": {"rollout_finished.v1", "tool_call_rejected.v1", "model_call_failed.v1", "session_failed.v1"},
        "killed": {"model_call_lost.v1", "sandbox_lost.v1"},
        "cancelled": {"run_cancelled.v1", "session_failed.v1"},
        "paused": {"run_paused.v1", "run_resumed.v1"},
        "frozen": {"model_call_requested.v1"},
    }
    assert met[name] <= {e.type for e in history(name)}
    assert all(lives_of(name, machine) for machine in MACHINES)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_stated_twice_wherever_the_log_ends(name: str, machine: str) -> None:
    """Always replay: whoever takes over at any prefix of the log decides, or gives up with, no event that is in it already."""
    for life in lives_of(name, machine):
        in_log: set[str] = set()
        for n, state in enumerate(life.states()):
            if n:
                in_log.add(life.events[n - 1].event_id)
            now = life.events[max(n - 1, 0)].recorded_at
            for known in (state, life.machine.taken_over(state)):
                for at in (now, now + LATER):
                    drafts = [*life.machine.decide(known, at)]
                    ids = [life.id_of(d) for d in drafts]
                    assert len(set(ids)) == len(ids), drafts
                    assert not in_log.intersection(ids), (life.where, n, drafts)
                given_up = [life.id_of(d) for d in life.machine.crashed(known, BROKEN)]
                assert not in_log.intersection(given_up), (life.where, n)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_a_finished_aggregate_is_done_and_wants_nothing(name: str, machine: str) -> None:
    """After the whole log of a run that is over, every machine is done, decides nothing and has nothing going on."""
    for life in lives_of(name, machine):
        state = life.states()[-1]
        now = life.events[-1].recorded_at
        assert life.machine.is_done(state), life.where
        assert list(life.machine.decide(state, now + LATER)) == []
        assert list(life.machine.pending(state)) == []
        assert list(life.machine.crashed(state, BROKEN)) == []


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_the_log_is_what_was_decided(name: str, machine: str) -> None:
    """What `decide` says at a prefix is what the log then holds of it, in that order, if it holds it at all."""
    for life in lives_of(name, machine):
        order = {e.event_id: n for n, e in enumerate(life.events) if life.is_own(e)}
        for n, state in enumerate(life.states()):
            now = life.events[max(n - 1, 0)].recorded_at
            ids = [life.id_of(d) for d in life.machine.decide(state, now)]
            at = [order[i] for i in ids if i in order]
            assert at == sorted(at)
            assert all(place >= n for place in at)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_a_repeated_event_changes_nothing(name: str, machine: str) -> None:
    """An event told twice in a row is folded once."""
    for life in lives_of(name, machine):
        for event, state in zip(life.events, life.states()[1:], strict=True):
            if not is_known_fault(life, event):
                assert life.machine.evolve(state, event) == state, (life.where, event.type)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_an_old_answer_heard_again_changes_nothing(name: str, machine: str) -> None:
    """A drive that reads the log again is told what others wrote long ago: nothing of it is folded twice."""
    for life in lives_of(name, machine):
        states = life.states()
        for n, state in enumerate(states):
            for event in life.events[:n]:
                if not life.is_own(event) and not is_known_fault(life, event):
                    assert life.machine.evolve(state, event) == state, (life.where, n, event.type)


@pytest.mark.parametrize("name", ["killed", "cancelled", "frozen"])
def test_an_old_try_heard_again_changes_nothing(name: str) -> None:
    """What a read of the log brings back about an earlier try of a model call is no news."""
    for life in lives_of(name, "SessionMachine"):
        for n, state in enumerate(life.states()):
            for event in life.events[:n]:
                if isinstance(event.data, ModelCallRequested):
                    assert life.machine.evolve(state, event) == state


def test_a_pause_heard_again_is_no_other_pause() -> None:
    """The number of a pause names its effects and the next pause's event."""
    for life in lives_of("paused", "RunMachine"):
        for event, state in zip(life.events, life.states()[1:], strict=True):
            assert life.machine.evolve(state, event) == state


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NAMES)
def test_a_state_survives_its_snapshot(name: str, machine: str) -> None:
    """Written down as JSON and read again, every state on the way is the same."""
    for life in lives_of(name, machine):
        for state in life.states():
            assert life.machine.state_type.model_validate_json(state.model_dump_json()) == state


# -- over anything -------------------------------------------------------------------------------------------------------------

POOL: tuple[Envelope, ...] = tuple(example(data) for data in EXAMPLES.values())
ANY_LIFE = st.sampled_from(NAMES).flatmap(lambda name: st.sampled_from(lives(name)))


def pool_of(life: Life) -> st.SearchStrategy[Envelope]:
    """Return events to choose from: those of the aggregate's own story, as often as the examples of every type."""
    return st.sampled_from(life.events) | st.sampled_from(POOL)


def wander(life: Life, events: list[Envelope]) -> Any:
    """Fold any events in any order; deciding and wanting must never raise, and must say the same when asked twice."""
    machine, state = life.machine, life.first
    now = life.events[0].recorded_at
    for event in events:
        state = machine.evolve(state, event)
        for known in (state, machine.taken_over(state)):
            for at in (now, now + LATER):
                assert list(machine.decide(known, at)) == list(machine.decide(known, at))
            assert list(machine.pending(known)) == list(machine.pending(known))
            assert len({e.id for e in machine.pending(known)}) == len(machine.pending(known))
            assert list(machine.crashed(known, BROKEN)) == list(machine.crashed(known, BROKEN))
            assert machine.is_done(known) in {True, False}
    return state


@given(st.data())
@settings(derandomize=True, max_examples=250, deadline=None)
def test_any_known_event_may_come_at_any_time(data: st.DataObject) -> None:
    """`evolve` never raises on a known event, whatever came before; nor does anything that looks at the state."""
    life = data.draw(ANY_LIFE)
    events = data.draw(st.lists(pool_of(life), max_size=25))
    assert wander(life, events) == wander(life, events)


@given(st.data())
@settings(derandomize=True, max_examples=120, deadline=None)
def test_disorder_within_a_story_never_raises(data: st.DataObject) -> None:
    """The events of an aggregate's own story, shuffled: late, early, missing."""
    life = data.draw(ANY_LIFE)
    events = data.draw(st.permutations(life.events))
    wander(life, events[: data.draw(st.integers(0, len(events)))])


def test_a_snapshot_of_another_kind_is_ignored() -> None:
    """A machine that meets another aggregate's snapshot goes on."""
    life = lives_of("failing", "RunMachine")[0]
    session = Snapshot(state={"read_after": 0, "state": {"turn": 3}})
    assert life.machine.evolve(life.first, example(session)) == life.first
