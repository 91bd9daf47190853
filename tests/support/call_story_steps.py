"""Random stories: any interleaving of asking, asking again, answering rightly and wrongly, failing and losing."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

from tests.support.call_story import IDS, Story, Told

HOW = ("exact", "exact", "exact", "retokenised", "dropped", "kept_part")
SAMPLED = [IDS[text] for text in ("a", "b", "c", "ab", "bc", "ca", "abc")]

GENERATED = st.lists(st.sampled_from(SAMPLED), min_size=1, max_size=4)
WHICH = st.sampled_from([0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 5, 8, 13])
WORDS = st.sampled_from("abc")
SETUP = (st.sampled_from("ab"), st.sampled_from(["t1", "t2"]), st.sampled_from(["s1", "s2"]))
TURN = st.tuples(st.just("turn"), WHICH, WORDS, st.sampled_from(HOW), GENERATED)
ASK = st.tuples(st.just("ask"), WHICH, WORDS, st.sampled_from(HOW))
ANSWER = st.tuples(st.just("answer"), WHICH, GENERATED)
AGAIN = st.tuples(st.just("again"), WHICH)

STEPS = st.lists(
    st.one_of(
        *(TURN, TURN, TURN, TURN, TURN, TURN, ASK, ASK, ANSWER, ANSWER, ANSWER, AGAIN),
        st.tuples(st.just("root"), WORDS, *SETUP),
        st.tuples(st.just("reset"), WORDS, *SETUP, GENERATED),
        st.tuples(st.just("reset"), WORDS, *SETUP, GENERATED),
        st.tuples(st.just("spoil"), WHICH, st.sampled_from(SAMPLED), st.integers(0, 8)),
        st.tuples(st.just("fail"), WHICH, st.sampled_from([None, 429, 500])),
        st.tuples(st.just("lose"), WHICH, st.sampled_from([None, 0, 3])),
    ),
    min_size=8,
    max_size=50,
)


def tell(steps: list[tuple[Any, ...]]) -> Story:
    """Return the story of `steps`; numbers choose among what there is, the newest first; a step that finds nothing is left out."""
    story = Story()
    story.open_session()
    story.root()
    for step, *rest in steps:
        if step in {"root", "reset"}:
            for told in [told for told in story.calls if told.state == "open" and step == "reset"]:
                story.answer(told)
            text, system, tools, conversation, *answer = rest
            told = story.root(text, system=system, tools=tools, conversation=conversation)
            if answer:
                story.answer(told, answer[0])
            continue
        wanted = {"turn": {"completed"}, "ask": {"completed"}, "again": {"completed", "failed", "lost"}}.get(
            step, {"open"}
        )
        if among := [told for told in story.calls if told.state in wanted]:
            _act(story, step, among[-1 - rest[0] % len(among)], *rest[1:])
    return story


def _act(story: Story, step: str, told: Told, *rest: Any) -> None:
    match step:
        case "turn":
            story.answer(story.ask(told, rest[0], how=rest[1]), rest[2])
        case "ask":
            story.ask(told, rest[0], how=rest[1])
        case "again":
            story.again(told)
        case "answer":
            story.answer(told, rest[0])
        case "spoil":
            _spoil(story, told, *rest)
        case "fail":
            story.fail(told, rest[0])
        case _:
            story.lose(told, late_tokens=rest[0])


def _spoil(story: Story, told: Told, token: int, how: int) -> None:
    """Answer a call in a way that cannot be trained."""
    generated = [token, token]
    told.generated, told.logprobs = generated, [-0.5, -0.5]
    wrong: dict[int, dict[str, Any]] = {
        0: {"tokens": None},
        1: {"tokens": None, "untrainable": "no_token_ids"},
        2: {"untrainable": "sources_disagree"},
        3: {"logprobs": [-0.5]},
        4: {"logprobs": [-0.5, math.inf]},
        5: {"is_unread": True},
        6: {"tokens": story.difference(told, digest="0" * 64)},
        7: {"tokens": story.difference(told, parent_id="nobody", shared=3)},
    }
    if how in wrong:
        story.answer(told, generated, **wrong[how])
    else:
        story.answer(told, [])
