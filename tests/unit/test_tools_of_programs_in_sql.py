"""How many tools a rollout called: what its agent's own program told of them, once each, whatever was done again."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from gym_bus.codec import Codec, Head
from projections.store import Connection
from schemas.base import Event
from schemas.events import LaunchTold
from schemas.harnesses import ToldItem
from tests.support.examples import EXAMPLES, subject_of
from tests.support.logs import project

AT = datetime(2026, 1, 1, tzinfo=UTC)
LAUNCH = EXAMPLES["launch_requested.v1"]
TASK_CALL = EXAMPLES["task_tool_call_requested.v1"]


def projected(*events: tuple[str, int, Event]) -> Connection:
    """Return the projection of events: of each its id, its attempt and its data."""
    codec, numbers, stored = Codec(MemoryBlobs()), count(1), []
    for event_id, attempt, data in events:
        number = next(numbers)
        head = Head(event_id, attempt, 1, number, None, AT)
        stored.append(Stored(subject_of(data), codec.encode(head, data), number))
    return project(stored)


def launch(activation: int = 1, number: int = 1) -> Event:
    """Return the request to launch a program."""
    return LAUNCH.replaced(activation=activation, number=number)


def told(launch_id: str, *calls: str | None, part: int = 1) -> Event:
    """Return what a program told: words, and that it called tools, by the ids of the calls."""
    items = [ToldItem(kind="said", text="so"), *(ToldItem(kind="tool_asked", name="bash", id=call) for call in calls)]
    return LaunchTold(launch_id=launch_id, part=part, items=tuple(items))


def asked() -> tuple[str, int, Event]:
    """Return the session's request."""
    return ("s", 2, EXAMPLES["session_requested.v1"])


def called(*events: tuple[str, int, Event]) -> list[Any]:
    """Return the tool calls of the only rollout."""
    return projected(asked(), *events).execute("select tool_calls from rollouts").fetchall()


def test_what_a_program_told_is_counted_over_all_activations() -> None:
    """Words and results are no calls; of another attempt nothing counts."""
    events = [
        ("l0", 1, launch()),
        ("t0", 1, told("l0", "c1")),
        ("l1", 2, launch()),
        ("t1", 2, told("l1", "c1", "c2")),
        ("t2", 2, told("l1", "c3", part=2)),
        ("l2", 2, launch(activation=2)),
        ("t3", 2, told("l2", "c1")),
    ]
    assert called(*events) == [(4,)]


def test_of_a_program_that_was_launched_again_only_the_last_launch_counts() -> None:
    """It does all of the activation again; the activation before stays as it was."""
    events = [
        ("l1", 2, launch()),
        ("t1", 2, told("l1", "c1", "c2")),
        ("l2", 2, launch(activation=2)),
        ("t2", 2, told("l2", "c3", "c4", "c5")),
        ("l3", 2, launch(activation=2, number=2)),
        ("t3", 2, told("l3", "c3")),
    ]
    assert called(*events) == [(3,)]


def test_a_call_that_is_told_twice_counts_once_and_one_without_an_id_by_itself() -> None:
    """A session file that is read from its beginning again tells everything again."""
    events = [
        ("l1", 2, launch()),
        ("t1", 2, told("l1", "c1", "c2")),
        ("t2", 2, told("l1", "c1", "c2", None, None, part=2)),
    ]
    assert called(*events) == [(4,)]


def test_tools_of_the_task_count_where_no_program_tells_of_them() -> None:
    """A program's account has them already."""
    assert called(("q1", 2, TASK_CALL)) == [(1,)]
    assert called(("q1", 2, TASK_CALL), ("l1", 2, launch()), ("t1", 2, told("l1", "c1"))) == [(1,)]


@pytest.mark.parametrize(
    "items", ["5", '"x"', "{}", "null", "[]", "[5, null, {}]", '[{"kind": "tool_asked", "id": {}}]']
)
def test_an_odd_account_holds_nothing_up(items: str) -> None:
    """What is told is the program's own word."""
    body = b'{"event_id":"t1","type":"launch_told.v1","attempt":2,"epoch":1,"ordinal":1,"causation_id":null,'
    body += b'"recorded_at":"2026-01-01T00:00:00Z","data":{"launch_id":"l1","part":1,"items":%s}}' % items.encode()
    subject = subject_of(EXAMPLES["launch_told.v1"])
    store = project([Stored(subject, body, 1)])
    assert store.execute("select (select count(*) from events) + (select count(*) from quarantine)").fetchone() == (1,)
