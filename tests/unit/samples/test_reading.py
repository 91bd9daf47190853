"""From stored events to calls: what is put back together, and what is known of a call that gave no tokens."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime

import pytest

from gym_bus.blobs import MemoryBlobs
from gym_bus.codec import Codec, Head
from gym_bus.token_ids import digest_of
from projections.samples import by_attempt, check, rebuild
from projections.samples.ids import Ids
from projections.samples.reading import read_calls
from schemas.conversation import CacheHint, Text, Turn
from schemas.envelope import Envelope
from schemas.values import Message, Sampling
from tests.support.call_story import IDS, Story, hashed


def stored(event: Envelope, codec: Codec) -> Envelope:
    """Return an event after it was written to bytes and read again."""
    head = Head(event.event_id, event.attempt, event.epoch, event.ordinal, None, datetime(2026, 1, 1, tzinfo=UTC))
    body = codec.encode(head, event.data)
    subject = f"gym.evt.0.{event.run_id}.{event.rollout_id}.{event.actor}.{event.key}.{event.type.partition('.')[0]}"
    return codec.decode(subject, body, event.sequence)


def test_rows_survive_being_stored_and_large_ones_come_out_of_blobs() -> None:
    """Bytes, blobs and back: the same rows, checked."""
    story, blobs = Story(), MemoryBlobs()
    first = story.answer(story.root("abc" * 9_000), [IDS["a"]] * 9_000)
    story.answer(story.ask(first), "b")
    read = [stored(event, Codec(blobs)) for event in story.events]
    assert blobs._content, "large enough for a blob"
    assert rebuild(read).samples == rebuild(story.events).samples
    assert check(rebuild(read)) == ()


def test_the_digest_is_the_specified_one() -> None:
    """The story's plain digest and the project's are the same, or the tests would hold one against itself."""
    for ids in ([], [0], [10, 11, 12], list(range(300))):
        assert hashed(ids) == digest_of(array("q", ids))


def test_ids_begin_as_often_as_their_bases_say() -> None:
    """A difference may share less than its base has."""
    base = Ids(None, 0, array("q", [1, 2, 3, 4]))
    child = Ids(base, 2, array("q", [9, 8]))
    grandchild = Ids(child, 3, array("q", [7]))
    assert list(grandchild.whole()) == [1, 2, 9, 7]
    assert list(grandchild.first(1)) == [1]
    assert not child.begins_with(base, 4)
    assert Ids(None, 0, array("q", [1, 2, 3, 4, 5])).begins_with(base, 4)
    assert not Ids(base, 4, array("q", [5])).begins_with(base, 3)


def test_what_did_not_complete_is_excluded_with_what_is_known_of_its_tokens() -> None:
    """A refused call generated nothing; of the others nobody knows, unless a late answer was counted."""
    story = Story()
    calls = [story.root(text) for text in ("a", "b", "c", "ab", "bc")]
    story.fail(calls[0], 429)
    story.fail(calls[1])
    story.lose(calls[2])
    story.lose(calls[3], late_tokens=5)
    excluded = [(one.call_id, one.reason, one.tokens) for one in rebuild(story.events).excluded]
    reasons = (("failed", 0), ("failed", None), ("lost", None), ("late", 5), ("unanswered", None))
    assert excluded == [(call.id, *reason) for call, reason in zip(calls, reasons, strict=True)]


def test_a_digest_that_differs_breaks_the_chain_from_there_on() -> None:
    """What was put together on those ids cannot be believed either; what has its whole prompt in the log can."""
    story = Story()
    first = story.answer(story.root())
    second = story.ask(first)
    second.generated, second.logprobs = [IDS["a"]], [-0.25]
    story.answer(second, "a", tokens=story.difference(second, digest="0" * 64))
    third = story.answer(story.ask(second))
    fourth = story.ask(second, "c", how="retokenised")
    fourth.generated, fourth.logprobs = [IDS["b"]], [-0.25]
    whole = story.difference(fourth, parent_id=None, shared=0, prompt=tuple(fourth.prompt))
    story.answer(fourth, "b", tokens=whole)
    rebuilt = rebuild(story.events)
    assert [(one.call_id, one.reason) for one in rebuilt.excluded] == [
        (second.id, "chain_broken"),
        (third.id, "chain_broken"),
    ]
    assert [(row.call_ids, row.gaps) for row in rebuilt.samples] == [((first.id, fourth.id), ("parent_without_ids",))]
    assert check(rebuilt) == ()


def test_an_answer_whose_request_is_missing_is_listed() -> None:
    """It cannot be placed, and is not lost from the count."""
    story = Story()
    first = story.answer(story.root(), "abca")
    rebuilt = rebuild(story.events[1:])
    assert [(one.call_id, one.reason, one.tokens) for one in rebuilt.excluded] == [(first.id, "request_unknown", 2)]
    assert check(rebuilt) == ()


def test_attempts_are_rebuilt_one_by_one() -> None:
    """Events of two are refused; `by_attempt` parts them."""
    story = Story()
    story.answer(story.root())
    events = [*story.events, *(event.replaced(attempt=2) for event in story.events)]
    with pytest.raises(ValueError, match="one attempt"):
        rebuild(events)
    assert list(by_attempt(events)) == [1, 2]


def test_the_system_prompt_is_compared_by_its_words() -> None:
    """Roles, hints and cuts of turns change nothing; native messages count too; children have their root's."""
    story = Story()
    turns = (
        Turn(role="developer", parts=(Text(text="b", cache=CacheHint()),), is_plain=True),
        Turn(role="user", parts=(Text(text="a"),)),
    )
    messages = (Message(role="system", content="b"), Message(role="user", content="a"))
    one, two = story.root(), story.root()
    story.events[1] = story.events[1].replaced(data=two.asked.replaced(new_turns=turns))
    story.root()
    story.events[2] = story.events[2].replaced(
        data=two.asked.replaced(new_turns=(), new_messages=messages, dialect=None)
    )
    story.answer(one)
    story.ask(one)
    story.root(system="c")
    digests = [call.system_digest for call in read_calls(story.events).calls]
    assert len(set(digests[:4])) == 1
    assert digests[4] != digests[0]


def test_a_native_agents_calls_have_the_sessions_sampling() -> None:
    """Those of a gateway have only what the client asked for."""
    story = Story()
    story.open_session(Sampling(temperature=0.7))
    story.root(dialect=None, parameters={})
    story.root(parameters={"top_p": 0.5})
    recorded = read_calls(story.events)
    assert [(call.knobs.temperature, call.knobs.top_p) for call in recorded.calls] == [(0.7, None), (None, 0.5)]
    assert recorded.task_id == "letters/1"
