"""Token faults that trainers met elsewhere (numbered as in the project's collection of cases), each held here by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.samples import check, rebuild
from schemas.conversation import Text, ToolResult, Turn
from schemas.values import Message, Sampling, ToolCall
from tests.support.call_story import IDS, Story, decode, encode, rendered


def test_case_36_sampled_pieces_are_kept_and_never_cut_anew() -> None:
    """The model sampled "ab" + "c"; the tokenizer would have cut "abc". Token in, token out: the row holds what was sampled."""
    story = Story()
    first = story.answer(story.root(), [IDS["ab"], IDS["c"]])
    second = story.answer(story.ask(first), [IDS["a"], IDS["bc"]])
    [row] = rebuild(story.events).samples
    assert encode(decode(first.generated)) != first.generated
    assert list(row.token_ids) == second.whole
    assert list(row.token_ids[row.spans[0].generated_start : row.spans[0].end]) == [IDS["ab"], IDS["c"]]
    assert len(row.loss_mask) == len(row.logprobs) == len(row.token_ids)
    assert sum(row.loss_mask) == 4


def test_case_37_a_prompt_that_does_not_begin_with_the_one_before_starts_a_row_of_its_own() -> None:
    """The history was rendered from text: no assertion fails, the second call is a row with its own whole prompt, mask 0."""
    story = Story()
    first = story.answer(story.root(), [IDS["ab"], IDS["c"]])
    second = story.answer(story.ask(first, how="retokenised"), "b")
    rebuilt = rebuild(story.events)
    main, rewritten = rebuilt.samples
    assert check(rebuilt) == ()
    assert (main.relation, rewritten.relation) == ("main", "rewritten")
    assert (rewritten.parent, rewritten.parent_call_id) == (main.sample_id, first.id)
    assert list(rewritten.token_ids) == second.whole
    assert rewritten.prompt_length == len(second.prompt)
    assert sum(rewritten.loss_mask) == len(second.generated)
    assert sum(main.loss_mask) == len(first.generated)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(
        st.lists(st.sampled_from([IDS["a"], IDS["ab"], IDS["abc"]]), min_size=1, max_size=3), min_size=3, max_size=12
    )
)
def test_case_38_a_row_of_many_turns_begins_with_all_of_them(answers: list[list[int]]) -> None:
    """However many turns: the row is one, and before each answer stands everything that came before it."""
    story = Story()
    told = story.answer(story.root(), answers[0])
    for answer in answers[1:]:
        told = story.answer(story.ask(told), answer)
    [row] = rebuild(story.events).samples
    assert list(row.token_ids) == told.whole
    for call, span in zip(story.calls, row.spans, strict=True):
        assert list(row.token_ids[: span.generated_start]) == call.prompt
    assert sum(row.loss_mask) == sum(map(len, answers))


def test_case_39_structural_tokens_between_turns_are_the_backends() -> None:
    """Nothing is rendered here, so no separator can be dropped: what stands between two answers is what the backend was sent.

    A row's ids come from the backend alone. The template's newline after the assistant's end is in the second call's prompt, and
    so in the row, with mask 0.
    """
    story = Story()
    first = story.answer(story.root(), "ab")
    second = story.answer(story.ask(first, "c"), "a")
    [row] = rebuild(story.events).samples
    between = row.token_ids[row.spans[1].start : row.spans[1].generated_start]
    assert list(between) == [IDS["</>"], IDS["\n"], *rendered("user", "c"), IDS["<a>"]]
    assert set(row.loss_mask[row.spans[1].start : row.spans[1].generated_start]) == {0}
    assert list(row.token_ids[: row.spans[1].generated_start]) == second.prompt


def test_case_40_the_history_in_a_row_is_the_one_that_was_sent() -> None:
    """Calls of tools cannot vanish from a history: rows are made from ids, and not from the turns that the log holds beside them.

    History sent = history logged: the same ids with other words beside them give the same row, and the ids of the turn with
    the tool's call are in it as they were generated.
    """
    with_call, without = Story(), Story()
    calls = (ToolCall(id="c1", name="shell", arguments="{}"),)
    for story, message in (
        (with_call, Message(role="assistant", tool_calls=calls)),
        (without, Message(role="assistant", content="")),
    ):
        first = story.answer(story.root(), "abca")
        story.events[-1] = story.events[-1].replaced(data=story.events[-1].data.replaced(message=message))
        story.answer(story.ask(first), "b")
    [row], [other] = rebuild(with_call.events).samples, rebuild(without.events).samples
    assert row == other
    assert decode(row.token_ids[row.spans[0].generated_start : row.spans[0].end]) == "abca"


def test_case_41_results_of_two_tools_stand_in_a_row_as_they_were_sent_together() -> None:
    """Two results one after the other are one piece of prompt, rendered by the backend at once; here they are only copied."""
    story = Story()
    first = story.answer(story.root(), "ca")
    results = tuple(ToolResult(call_id=n, parts=(Text(text="a"),)) for n in ("c1", "c2"))
    second = story.ask(first, "aa")
    asked = story.events[-1]
    story.events[-1] = asked.replaced(data=asked.data.replaced(new_turns=(Turn(role="tool", parts=results),)))
    story.answer(second, "b")
    [row] = rebuild(story.events).samples
    assert list(row.token_ids[: row.spans[1].generated_start]) == second.prompt
    assert decode(row.token_ids).count("<u>") == 2, "one turn for the question, one for both results"


@pytest.mark.parametrize("untrainable", [None, "no_token_ids"])
def test_case_42_a_call_without_ids_is_excluded_and_nothing_is_padded(untrainable: str | None) -> None:
    """Text is not tokenised again and no logprob is 0.0 by default; its tokens are counted by what the backend said."""
    story = Story()
    first = story.answer(story.root(), "ab")
    second = story.answer(story.ask(first), "bca", tokens=None, untrainable=untrainable)
    third = story.answer(story.ask(second), "c")
    rebuilt = rebuild(story.events)
    [row] = rebuilt.samples
    [excluded] = rebuilt.excluded
    reason = "no_token_ids" if untrainable is None else "untrainable:no_token_ids"
    assert (excluded.call_id, excluded.reason, excluded.tokens) == (second.id, reason, len(second.generated))
    assert row.call_ids == (first.id, third.id)
    assert row.gaps == ("parent_without_ids",)
    assert list(row.token_ids) == third.whole
    assert 0.0 not in row.logprobs
    trained = [lp for lp, mask in zip(row.logprobs, row.loss_mask, strict=True) if mask]
    assert trained == [*first.logprobs, *third.logprobs]
    assert {lp for lp, mask in zip(row.logprobs, row.loss_mask, strict=True) if not mask} == {None}


def test_case_43_ids_and_logprobs_of_different_lengths_are_excluded() -> None:
    """566 ids and 565 logprobs: nothing is cut to fit. Neither are values that are no numbers trained."""
    story = Story()
    first = story.answer(story.root(), [IDS["a"]] * 566, logprobs=[-0.1] * 565)
    second = story.answer(story.root("b"), "a", logprobs=[float("nan")])
    rebuilt = rebuild(story.events)
    assert rebuilt.samples == ()
    assert [(one.call_id, one.reason, one.tokens) for one in rebuilt.excluded] == [
        (first.id, "lengths_differ", 566),
        (second.id, "logprobs_not_finite", 1),
    ]
    assert check(rebuilt) == ()


def test_case_44_sampling_and_the_kind_of_logprobs_stay_with_the_call() -> None:
    """What was in force is what the client asked for with the configuration's over it; weights that changed in the middle show."""
    story = Story()
    story.open_session(Sampling(temperature=1.0, top_p=0.8))
    asked = {"parameters": {"temperature": 0.6, "top_k": 40}, "overrides": {"top_p": 0.9, "top_k": None}}
    first = story.answer(story.root("a", **asked), policy_versions=("7", "8"), stop_reason="length")
    second = story.ask(first, dialect=None, parameters={})
    second.generated = [IDS["a"]]
    story.answer(second, "a", tokens=story.difference(second, logprobs=(-0.5,), logprob_kind="raw"))
    [row] = rebuild(story.events).samples
    one, other = row.spans
    assert (one.temperature, one.top_p, one.top_k, one.logprob_kind) == (0.6, 0.9, None, "processed")
    assert (one.policy_versions, one.stop_reason) == (("7", "8"), "length")
    assert (other.temperature, other.top_p, other.top_k, other.logprob_kind) == (1.0, 0.8, None, "raw")
    assert row.task_id == "letters/1"


def test_case_45_a_row_without_trainable_tokens_is_rejected_and_listed() -> None:
    """No row is silently masked all over."""
    story = Story()
    first = story.answer(story.root(), "ab", is_unread=True)
    rebuilt = rebuild(story.events)
    assert rebuilt.samples == ()
    [rejected] = rebuilt.rejected
    assert (rejected.call_ids, rejected.reason) == ((first.id,), "no_trainable_tokens")
    story.answer(story.ask(first), "c")
    [row] = rebuild(story.events).samples
    assert [span.is_trained for span in row.spans] == [False, True]
    assert list(row.logprobs[row.spans[0].generated_start : row.spans[0].end]) == first.logprobs
    assert rebuild(story.events).rejected == ()
