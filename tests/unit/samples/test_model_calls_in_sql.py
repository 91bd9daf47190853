"""What the view `model_calls` says about tokens, prices and parents, and that a late answer answers nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gym_bus.blobs import MemoryBlobs
from gym_bus.bus import Stored
from gym_bus.codec import Codec, Head
from projections import violations
from projections.store import Connection
from schemas.base import Event
from schemas.events import BudgetExhausted
from tests.support.call_story import IDS, Story
from tests.support.logs import project

COLUMNS = (
    "state, dialect, parent_id, first_token_s, queue_s, cost_usd, served_model, "
    "prompt_tokens, generated_tokens, has_tokens, untrainable"
)


def projected(story: Story) -> tuple[Connection, MemoryBlobs]:
    blobs = MemoryBlobs()
    codec = Codec(blobs)
    stored: list[Stored] = []
    for event in story.events:
        head = Head(event.event_id, 1, 0, 1, None, datetime(2026, 1, 1, tzinfo=UTC))
        where = f"gym.evt.0.r1.0-0.{event.actor}.{event.key}"
        kind = "cmd.harness.any" if event.actor == "collector" else event.type.partition(".")[0]
        stored.append(Stored(f"{where}.{kind}", codec.encode(head, event.data), event.sequence))
    connection = project(stored, blobs)
    assert connection.execute("select * from quarantine").fetchall() == []
    return connection, blobs


def rows(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(f"select {COLUMNS} from model_calls order by seq").fetchall()


def test_a_call_says_what_it_was_and_how_many_ids_it_has() -> None:
    """Counts are of whole prompts, though the log holds differences; what was not said is null and never 0."""
    story = Story()
    first = story.answer(story.root(), "abca", first_token_s=0.1, queue_s=0.0, cost_usd=0.002, served_model="m-1")
    second = story.answer(story.ask(first), "b")
    third = story.answer(story.ask(second), tokens=None, untrainable="no_token_ids")
    story.fail(story.ask(third))
    story.root()
    connection, _ = projected(story)
    assert rows(connection) == [
        ("completed", "chat", None, 0.1, 0.0, 0.002, "m-1", len(first.prompt), 2, True, None),
        ("completed", "chat", first.id, None, None, None, None, len(second.prompt), 1, True, None),
        ("completed", "chat", second.id, None, None, None, None, None, None, False, "no_token_ids"),
        ("failed", "chat", third.id, None, None, None, None, None, None, None, None),
        (None, "chat", None, None, None, None, None, None, None, None, None),
    ]


def test_a_call_that_lies_in_a_blob_is_counted_too() -> None:
    """Large events go the slow way into the same table."""
    story = Story()
    story.answer(story.root("a" * 30_000), [IDS["a"]] * 20_000)
    connection, blobs = projected(story)
    assert blobs._content
    [row] = rows(connection)
    assert row[7:10] == (len(story.calls[0].prompt), 20_000, True)


def test_a_late_answer_and_a_used_up_budget_are_rows_and_answer_nothing() -> None:
    """The call was lost, and stays so; no invariant sees two answers, nor a client's second asking as a fault."""
    story = Story()
    told = story.root()
    story.lose(told, late_tokens=3)
    again = story.answer(story.again(told))
    story.answer(story.again(again))
    exhausted: Event = BudgetExhausted(scope="run", limit="model_calls", allowed=1, used=1)
    story.tell(exhausted, key="s1")
    connection, _ = projected(story)
    assert [row[0] for row in rows(connection)] == ["lost", "completed", "completed"]
    found = violations(connection)
    assert "i5_pairing" not in found
    assert "i6_effect_once" not in found
    kinds = dict(connection.execute("select kind, count(*) from events group by kind").fetchall())
    assert kinds["model_call_late"] == kinds["budget_exhausted"] == 1
