"""A loop that begins anew when its context is full: its notes, its warnings, and what it says to an answer that is none."""

from __future__ import annotations

import time

import pytest
from pydantic import ValidationError

from schemas.events import (
    ActivationCompleted,
    AgentNudged,
    ContextCompacted,
    ProgressNoted,
    ToolCallRejected,
)
from schemas.loops import BrowsecompAgent
from tests.support.machine_case import Case
from tests.unit.test_compaction import answer, calls, compacting, new, round_of, searching, settled, shown


def test_a_full_context_is_warned_of_and_then_begins_anew_with_the_notes() -> None:
    """The model is told one call before; what it writes then is there afterwards, with the task and the last round."""
    case, _ = settled(round_of(new(searching()), "first", tokens=50))
    case, [warning] = settled(round_of(case, "second", tokens=101))
    assert isinstance(warning, AgentNudged)
    assert warning.reason == "reset_near"
    assert shown(case)[-1] == warning.text
    case, [noted, told] = settled(
        answer(case, None, '{"progress": "Not in Rome."}', tool="update_progress", tokens=130)
    )
    assert isinstance(noted, ProgressNoted)
    assert isinstance(told, ContextCompacted)
    assert (told.policy, told.messages, told.tokens_before) == ("reset", 5, 130)
    assert shown(case)[1].endswith("Your notes so far:\n\nNot in Rome.")
    assert shown(case)[2:] == ["", "Noted."]
    assert case.state.continues is None
    case, nothing = settled(round_of(case, tokens=60))
    assert nothing == [], "warned anew only when it is full anew"
    case, [again] = settled(round_of(case, tokens=160))
    assert isinstance(again, AgentNudged)
    assert again.number == 2


def test_without_notes_there_is_no_warning() -> None:
    """A context that is full begins anew at once if nothing can be written down."""
    case, [told] = settled(round_of(round_of(new(searching(progress=False))), tokens=200))
    assert isinstance(told, ContextCompacted)
    assert "notes" not in shown(case)[1]


def test_resets_have_a_bound() -> None:
    """After `max_reset_count` resets the context grows."""
    case = new(searching(max_reset_count=1, progress=False))
    kinds = []
    for _ in range(6):
        case, appended = settled(round_of(case, tokens=200))
        kinds += appended
    assert len(kinds) == 1


def test_notes_that_are_none_are_refused() -> None:
    """Broken arguments, other keys and too much are told and not kept."""
    for arguments in ('{"progress": ', '{"text": "a"}', '{"progress": 3}', f'{{"progress": "{"x" * 20_000}"}}'):
        case = answer(new(searching()), None, arguments, tool="update_progress")
        assert [type(d) for d in case.decided] == [ToolCallRejected], arguments
    case = answer(new(searching(progress=False)), None, '{"progress": "a"}', tool="update_progress")
    assert [type(d) for d in case.decided] == [ToolCallRejected], "it is no tool if there are no notes"


@pytest.mark.parametrize(
    ("text", "stop", "reason"),
    [("", "stop", "empty_answer"), ("Exact Answer: a", "length", "cut_answer"), ("a", "stop", "wanted_form")],
)
def test_an_answer_that_is_none_is_not_taken(text: str, stop: str, reason: str) -> None:
    """The model is told why and asked again, a bounded number of times; then its answer stands."""
    case = new(searching(answer_pattern="Exact Answer:", max_nudges=2))
    for number in (1, 2):
        case, [nudged] = settled(answer(case, text, stop=stop))
        assert isinstance(nudged, AgentNudged)
        assert (nudged.number, nudged.reason) == (number, reason)
        assert calls(case)
    done = answer(case, text, stop=stop).decided[0]
    assert isinstance(done, ActivationCompleted)
    assert done.evidence.answer == text


def test_what_is_wanted_is_taken_and_nothing_is_said_without_nudges() -> None:
    """An answer in the form that was asked for ends the session, as any answer does without nudges, or as the last step."""
    wanted = searching(answer_pattern="Exact Answer:")
    for agent, text in ((wanted, "Exact Answer: a"), (searching(nudge_steps=False), ""), (searching(max_steps=1), "")):
        assert isinstance(answer(new(agent), text).decided[0], ActivationCompleted)


def test_an_answer_that_was_nudged_is_still_the_last_one() -> None:
    """If no further call may be made, what was said before the nudge is the answer."""
    case, _ = settled(answer(new(searching(answer_pattern="z")), "a"))
    ended = Case(case.machine, case.state.replaced(stop_reason="budget:model_calls"))
    [done] = ended.decided
    assert isinstance(done, ActivationCompleted)
    assert done.evidence.answer == "a"


def test_what_is_null_by_default_may_be_said() -> None:
    """`guards` and `summary` may be null, which is what they are to whoever says nothing of them."""
    assert compacting(guards=None, summary=None) == compacting()


def test_a_pattern_that_is_none_is_refused() -> None:
    """An expression that cannot be compiled is an error of the configuration."""
    with pytest.raises(ValidationError, match="no regular expression"):
        searching(answer_pattern="(")


@pytest.mark.parametrize("pattern", [r"(\w+\s?)+:\s*done$", r"(a*)*b", r"(?:x(y{2,9}|z))*?$"])
def test_a_pattern_that_may_be_searched_for_ever_is_refused(pattern: str) -> None:
    """A repeat of a repeat is an error of the configuration; one that gives nothing back is none."""
    with pytest.raises(ValidationError, match="repeats what is repeated"):
        searching(answer_pattern=pattern)
    assert searching(answer_pattern=r"(\w++\s?)+: (ab?)+ \d{4}").answer_pattern


def test_a_pattern_is_searched_at_the_end_of_an_answer() -> None:
    """A long answer costs no more than what is searched of it: its last characters."""
    agent = searching(answer_pattern=r"\w+:")
    begun = time.process_time()
    _, [nudged] = settled(answer(new(agent), "Answer: b" + "a" * 1_000_000))
    assert time.process_time() - begun < 5
    assert isinstance(nudged, AgentNudged)
    assert isinstance(answer(new(agent), "a" * 1_000_000 + " Answer: b").decided[0], ActivationCompleted)


def test_how_full_a_context_may_be() -> None:
    """A share of the whole, or a number."""
    assert BrowsecompAgent().full_at_tokens == 58_982
    assert searching().full_at_tokens == 100
