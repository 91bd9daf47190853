"""The laws of the rebuild, on random trees of calls in any interleaving."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.samples import Rebuilt, check, rebuild
from tests.support.call_story import Story
from tests.support.call_story_steps import STEPS, tell

FAST = settings(max_examples=150, deadline=None, derandomize=True)


def by_id(story: Story) -> dict[str, Any]:
    return {told.id: told for told in story.calls}


@FAST
@given(STEPS)
def test_every_generated_token_is_trained_once_or_excluded_with_a_reason(steps: list[tuple[Any, ...]]) -> None:
    """Conservation, by the story's own count: trained + excluded = generated, call by call, and all other calls are excluded."""
    story = tell(steps)
    rebuilt = rebuild(story.events)
    assert check(rebuilt) == ()
    trained = Counter[str]()
    for sample in rebuilt.samples:
        for span in sample.spans:
            mask = sample.loss_mask[span.generated_start : span.end]
            assert set(mask) <= {int(span.is_trained)}
            trained[span.call_id] += sum(mask)
    excluded = {one.call_id: one for one in rebuilt.excluded}
    for told in story.calls:
        if told.id in excluded:
            assert trained[told.id] == 0
            tokens = excluded[told.id].tokens
            assert (
                tokens == len(told.generated)
                if told.state == "completed" and told.generated
                else not tokens or told.state == "lost"
            )
        else:
            assert told.state == "completed"
            assert trained[told.id] == len(told.generated) > 0
    assert sum(trained.values()) == rebuilt.trained


@FAST
@given(STEPS)
def test_each_call_stands_in_its_row_behind_its_whole_prompt(steps: list[tuple[Any, ...]]) -> None:
    """Contiguity, against the prompts that were sent: no token is missing, added or cut in another way."""
    story = tell(steps)
    truth = by_id(story)
    for sample in rebuild(story.events).samples:
        for span in sample.spans:
            told = truth[span.call_id]
            assert list(sample.token_ids[: span.generated_start]) == told.prompt
            assert list(sample.token_ids[span.generated_start : span.end]) == told.generated
            if span.is_trained:
                assert list(sample.logprobs[span.generated_start : span.end]) == told.logprobs
        assert len(sample.token_ids) == len(sample.loss_mask) == len(sample.logprobs) == sample.spans[-1].end
        assert any(sample.loss_mask)


@FAST
@given(STEPS, st.integers(0, 1_000_000))
def test_the_order_in_which_events_are_handed_over_changes_nothing(steps: list[tuple[Any, ...]], seed: int) -> None:
    """Only their sequence in the log counts."""
    story = tell(steps)
    mixed = list(story.events)
    random.Random(seed).shuffle(mixed)
    one, other = rebuild(story.events), rebuild(mixed)
    assert (one.samples, one.excluded, one.rejected) == (other.samples, other.excluded, other.rejected)


@FAST
@given(STEPS)
def test_relations_are_what_their_rules_say(steps: list[tuple[Any, ...]]) -> None:
    """One main row at most and it comes first; what a row names exists; a branch shares a prompt, a rewritten one has a parent."""
    rebuilt = rebuild(tell(steps).events)
    relations = [sample.relation for sample in rebuilt.samples]
    assert "main" not in relations[1:]
    rows = {sample.sample_id: sample for sample in rebuilt.samples}
    for sample in rebuilt.samples:
        assert (sample.relation == "restart") or sample.follows is None
        if sample.relation == "restart" and sample.follows is None:
            assert {"follows_ambiguous", "follows_without_row"} & set(sample.gaps)
        if sample.follows:
            followed = rows[sample.follows]
            assert followed.answered_at < sample.asked_at
        if sample.relation == "branch" and sample.parent and not sample.spans[0].is_trained:
            shared = sample.call_ids[: sample.call_ids.index(sample.parent_call_id or "") + 1]
            assert rows[sample.parent].call_ids[: len(shared)] == shared
        if sample.relation == "rewritten":
            assert sample.parent_call_id is not None


@FAST
@given(STEPS, st.integers(0, 40))
def test_a_run_that_is_still_going_can_be_read_at_any_moment(steps: list[tuple[Any, ...]], cut: int) -> None:
    """The laws hold for every beginning of the log; what is not answered yet says so."""
    story = tell(steps)
    events = story.events[: max(1, len(story.events) - cut)]
    rebuilt = rebuild(events)
    assert check(rebuilt) == ()
    is_open = {call.id for call in rebuilt.recorded.calls if call.state == "open"}
    assert is_open == {one.call_id for one in rebuilt.excluded if one.reason == "unanswered"}


def rows(rebuilt: Rebuilt) -> set[tuple[Any, ...]]:
    return {(s.relation, s.call_ids, s.token_ids, s.loss_mask) for s in rebuilt.samples}


@FAST
@given(st.permutations(range(4)), st.integers(1, 3))
def test_the_order_in_which_siblings_are_answered_does_not_matter(order: list[int], depth: int) -> None:
    """Of a sub-agent's parallel branches the first asked owns what they share; only the main chain is the one answered last."""

    def told(order: list[int], *, is_main: bool) -> Story:
        story = Story()
        if not is_main:
            main = story.answer(story.root("c", system="a"))
        parent = story.answer(story.root("a", system="b"))
        for _ in range(depth):
            parent = story.answer(story.ask(parent))
        if not is_main:
            story.ask(main, "c")
        asked = [story.ask(parent, text) for text in ("a", "b", "c", "ab")]
        for n in order:
            story.answer(asked[n])
        return story

    assert rows(rebuild(told(order, is_main=False).events)) == rows(rebuild(told([0, 1, 2, 3], is_main=False).events))
    story = told(order, is_main=True)
    main, *others = rebuild(story.events).samples
    assert main.call_ids[-1] == story.calls[depth + 1 + order[-1]].id
    assert [sum(sample.loss_mask) for sample in others] == [1, 1, 1]
