"""The checker finds what is wrong: each law broken on purpose, and found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from projections.samples import Rebuilt, check, rebuild
from projections.samples.sample import Excluded
from tests.support.call_story import Story


def rebuilt() -> Rebuilt:
    story = Story()
    first = story.answer(story.root(), "abca")
    story.answer(story.ask(first, "a"), "bc")
    story.answer(story.ask(first, "b"), "ca")
    story.answer(story.root("c", system="c"), tokens=None)
    return rebuild(story.events)


def first_row(**changes: Any) -> Callable[[Rebuilt], Rebuilt]:
    return lambda made: replace(made, samples=(made.samples[0].model_copy(update=changes), *made.samples[1:]))


def changed_row(change: Callable[[Any], dict[str, Any]]) -> Callable[[Rebuilt], Rebuilt]:
    return lambda made: first_row(**change(made.samples[0]))(made)


def last_span(**changes: Any) -> Callable[[Rebuilt], Rebuilt]:
    return changed_row(lambda row: {"spans": (*row.spans[:-1], row.spans[-1].model_copy(update=changes))})


BROKEN: dict[str, tuple[Callable[[Rebuilt], Rebuilt], str]] = {
    "a token is missing": (changed_row(lambda row: {"token_ids": row.token_ids[:-1]}), "columns of"),
    "a prompt's token is another": (
        changed_row(lambda row: {"token_ids": (99, *row.token_ids[1:])}),
        "the digest differs",
    ),
    "a generated token is another": (
        changed_row(lambda row: {"token_ids": (*row.token_ids[:-1], 99)}),
        "generated other tokens",
    ),
    "a prompt's token is trained": (
        changed_row(lambda row: {"loss_mask": (1, *row.loss_mask[1:])}),
        "the mask is not 1",
    ),
    "nothing is trained": (changed_row(lambda row: {"loss_mask": (0,) * len(row.loss_mask)}), "no token is trained"),
    "a logprob is missing": (changed_row(lambda row: {"logprobs": (*row.logprobs[:-1], None)}), "the logprob at"),
    "a prompt has a logprob": (
        changed_row(lambda row: {"logprobs": (0.0, *row.logprobs[1:])}),
        "the logprob at 0 is 0.0",
    ),
    "a call is left out": (changed_row(lambda row: {"call_ids": row.call_ids[1:]}), "its spans are not its calls"),
    "spans leave a hole": (last_span(start=0), "span 1 is"),
    "the row is longer than its spans": (last_span(end=1), "spans end at"),
    "a span is of nobody": (last_span(call_id="nobody"), "is not one with recorded tokens"),
    "a row names no row": (first_row(follows="nobody"), "names row nobody"),
    "another prompt_length": (first_row(prompt_length=1), "prompt_length"),
    "a row is there twice": (
        lambda made: replace(made, samples=(*made.samples, made.samples[0])),
        "the same sample_id",
    ),
    "tokens are trained twice": (
        lambda made: replace(made, samples=(*made.samples, made.samples[0])),
        "is trained 2 times",
    ),
    "a row is gone": (lambda made: replace(made, samples=made.samples[:1]), "is trained 0 times and excluded 0 times"),
    "an exclusion is gone": (lambda made: replace(made, excluded=()), "is trained 0 times and excluded 0 times"),
    "a stranger is excluded": (
        lambda made: replace(
            made, excluded=(*made.excluded, Excluded(call_id="x", conversation="s1", reason="lost", tokens=None))
        ),
        "call x is not in the log",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_law_is_found(name: str) -> None:
    """And only then."""
    made = rebuilt()
    assert check(made) == ()
    change, expected = BROKEN[name]
    assert any(expected in problem for problem in check(change(made))), check(change(made))


def test_an_excluded_call_has_as_many_tokens_as_it_generated() -> None:
    """Its ids are counted, whatever the exclusion says."""
    story = Story()
    story.answer(story.root(), "abca", is_unread=True)
    made = rebuild(story.events)
    assert check(made) == ()
    wrong = made.excluded[0].model_copy(update={"tokens": 7})
    assert any("excludes 7" in problem for problem in check(replace(made, excluded=(wrong,))))
