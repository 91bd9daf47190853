"""The subject grammar: put together, taken apart, moved to queues, matched."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gym_bus.errors import Permanent
from gym_bus.subjects import (
    aggregate,
    event_subject,
    event_subject_of_queued,
    matches,
    parse_event,
    queue_subject_of_event,
    request_subject,
    rollout_pattern,
    run_aggregate,
    shard_of,
    token,
)
from gym_bus.topology import MAY_ASK, USERS, consumer_of, place_of, rights
from schemas.events import __all__ as event_names
from schemas.ids import capture_key, digest_id
from schemas.registry import EVENT_TYPES
from tests.support.examples import EXAMPLES, subject_of, writer_of

TOKENS = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
PROFILE = settings(derandomize=True, max_examples=100, deadline=None)


@given(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, st.integers(1, 64))
@PROFILE
def test_a_fact_is_taken_apart_as_it_was_put_together(
    run: str, rollout: str, actor: str, key: str, kind: str, shards: int
) -> None:
    """Stored or live, the subject of a fact names its aggregate and its kind, and no place."""
    where = aggregate(run, rollout, actor, key, shards)
    subject = event_subject(where, kind)
    for seen in (subject, "gym.live." + subject.removeprefix("gym.evt.")):
        parsed = parse_event(seen)
        assert (parsed.aggregate, parsed.kind, parsed.to, parsed.place) == (where, kind, None, None)


@given(TOKENS, TOKENS, TOKENS, TOKENS, TOKENS, TOKENS)
@PROFILE
def test_a_request_keeps_its_subject_through_its_queue(
    run: str, rollout: str, actor: str, key: str, to: str, place: str
) -> None:
    """From the log into the queue and back."""
    where = aggregate(run, rollout, actor, key, 4)
    subject = request_subject(where, to, place)
    parsed = parse_event(subject)
    assert (parsed.aggregate, parsed.to, parsed.place) == (where, to, place)
    queued = queue_subject_of_event(subject)
    assert queued.startswith(f"gym.cmd.{to}.{place}.")
    assert event_subject_of_queued(queued) == subject


@pytest.mark.parametrize("text", ["", "a.b", "a b", "*", ">", "ü", "a" * 65, "a\n", "a/b", "\x00"])
def test_what_cannot_stand_in_a_subject_is_refused(text: str) -> None:
    """The error names the text and what may be used; no aggregate is made of it."""
    with pytest.raises(Permanent, match="is no name: one has 1 to 64 of the characters"):
        token(text)
    for parts in ((text, "r", "a", "k"), ("r", text, "a", "k"), ("r", "r", text, "k"), ("r", "r", "a", text)):
        with pytest.raises(Permanent):
            aggregate(*parts)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "gym.evt.0.r.1-0.harness.s1",
        "gym.evt.x.r.1-0.harness.s1.claim",
        "gym.evt.-1.r.1-0.harness.s1.claim",
        "gym.evt.².r.1-0.harness.s1.claim",
        "gym.hb.0.r.1-0.harness.s1.claim",
        "other.evt.0.r.1-0.harness.s1.claim",
        "gym.evt.0.r.1-0.harness.s1.claim.more",
        "gym.evt.0.r.1-0.harness.s1.cmd.sandbox.any.more",
        "gym.evt.0.r.1-0.harness.s1.not.sandbox.any",
        "other.evt.0.r.1-0.harness.s1.cmd.sandbox.any",
    ],
)
def test_what_is_no_events_subject_is_refused(subject: str) -> None:
    """With the one error of bad input, whatever is wrong with it."""
    with pytest.raises(Permanent, match="not the subject of an event"):
        parse_event(subject)


def test_aggregates_of_one_rollout_are_siblings() -> None:
    """They share shard, run and rollout, and everything of them is under the rollout's pattern."""
    session = aggregate("r1", "3-0", "harness", "s1", 8)
    box = session.sibling("sandbox", "b1")
    assert (box.rollout, box.shard, box.label) == (session.rollout, session.shard, "r1.3-0.b1")
    pattern = rollout_pattern(session.shard, "r1", "3-0")
    assert all(matches(pattern, event_subject(one, "claim")) for one in (session, box))
    assert not matches(pattern, event_subject(run_aggregate("r1"), "claim"))


def test_shards_are_stable_and_even() -> None:
    """A rollout's shard never changes, lies in range, and 1,000 rollouts spread over all of them."""
    assert [shard_of(f"{n}-0", 8) for n in range(8)] == [shard_of(f"{n}-0", 8) for n in range(8)]
    assert [shard_of(name, 4) for name in ("0-0", "1-0", "2-0", "3-0", "_")] == [3, 2, 2, 0, 3]
    counts = [0] * 8
    for n in range(1000):
        counts[shard_of(f"{n}-0", 8)] += 1
    assert min(counts) > 80
    assert shard_of("anything", 1) == 0


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a", False),
        ("a", "a.b", False),
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("*.b", "a.b", True),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        (">", "a", True),
        ("a.*.>", "a.b", False),
        ("a.*.c.>", "a.x.c.d", True),
    ],
)
def test_patterns_match_as_the_server_does(pattern: str, subject: str, expected: bool) -> None:
    """`*` is exactly one token, `>` at least one."""
    assert matches(pattern, subject) is expected


def test_ids_are_safe_and_told_apart() -> None:
    """16 URL-safe characters, the same for the same parts; parts cannot run into each other."""
    assert digest_id("a", "b") == digest_id("a", "b")
    assert len({digest_id("ab", ""), digest_id("a", "b"), digest_id("", "ab"), digest_id("ab")}) == 4
    assert token(digest_id("any", "text: ü 🙂")) != ""
    assert [capture_key("3-0", n) for n in (1, 2, 3)] == ["3-0", "3-0-a1", "3-0-a2"]


# -- rights, which are said in subjects ----------------------------------------------------------------------------------------


def may_publish(user: str, subject: str) -> bool:
    return any(matches(pattern, subject) for pattern in rights(user)["publish"])


def test_every_event_type_is_exported_once() -> None:
    """The union is closed: what is exported is registered, under a type of its own."""
    assert len(EVENT_TYPES) == len(event_names)


@pytest.mark.parametrize("type_", sorted(EXAMPLES))
def test_each_kind_may_write_its_own_events_and_no_other(type_: str) -> None:
    """For every type exactly the kinds that state it may publish its subject."""
    data = EXAMPLES[type_]
    allowed = {user for user in USERS if may_publish(user, subject_of(data))}
    assert allowed == {writer_of(data)}


@pytest.mark.parametrize("user", USERS)
def test_nobody_may_write_into_a_queue_or_for_another(user: str) -> None:
    """Queues are the server's; an actor's name is its own; who may be asked is a table."""
    for kind in USERS:
        assert not may_publish(user, f"gym.cmd.{kind}.any.0.r1.3-0.collector._")
        assert may_publish(user, f"gym.evt.0.r1.3-0.{user}.k.cmd.{kind}.any") == (kind in MAY_ASK[user])
        if kind != user:
            assert not may_publish(user, f"gym.evt.0.r1.3-0.{kind}.k.claim")
    assert not may_publish(user, "$JS.API.STREAM.DELETE.GYM_EVT_0")
    assert not may_publish(user, "$JS.API.STREAM.PURGE.GYM_EVT_0")
    assert not may_publish(user, "$JS.API.STREAM.UPDATE.GYM_EVT_0")


def test_a_place_is_found_in_its_consumers_name() -> None:
    """`any` and `ctl` are themselves; a host called like one of them is told apart."""
    for place in ("any", "ctl", "h0", "at-h0"):
        assert place_of(consumer_of(place)) in {place, place.removeprefix("at-")}
    assert len({consumer_of(p) for p in ("any", "ctl", "h0", "h1")}) == 4
