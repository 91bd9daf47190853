"""What the end of an agent's own program comes to: evidence, or a failure of the machinery, which is never graded."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.harnesses.launching.order import STDOUT_MAX_BYTES
from adapters.harnesses.outcomes import Seen, outcome
from adapters.harnesses.told import TEXT_MAX_CHARS, told
from adapters.harnesses.trajectory import (
    Compacted,
    Complained,
    Finished,
    Item,
    Problem,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)
from schemas.events import LaunchEnded, LaunchSettled
from schemas.harnesses import ToldItem
from schemas.tasks import Evidence
from schemas.values import Failure
from tests.support.heard import heard

WORK: tuple[Item, ...] = (
    SessionNamed("s"),
    Said("user", "Do it."),
    Thought("hm"),
    Said("assistant", "First."),
    ToolAsked("c1", "bash", "{}"),
    ReplyDone("r1"),
    ToolDone("c1", "out", 0, is_error=False),
    Said("assistant", "It is done."),
    ReplyDone("r2"),
    Finished("complete"),
)


def seen(*items: Item) -> Seen:
    return Seen().with_items(tuple(map(told, items)))


def ended(**changes: Any) -> LaunchEnded:
    values = {"ended_by": "exit", "exit_code": 0, "duration_s": 2.0, **changes}
    return LaunchEnded(request_id="q", **values)


SETTLED = LaunchSettled(launch_id="q", calls=2, completed=2)
DOWN = Failure(kind="provider_unavailable", message="503", stage="model")


def test_the_last_words_are_the_answer() -> None:
    assert outcome(ended(), seen(*WORK), SETTLED) == Evidence(answer="It is done.", stop_reason="stop", turns=2)
    assert seen(*WORK).session_id == "s"


def test_words_beside_a_call_are_no_answer() -> None:
    """An agent that ends after a tool's result has said nothing in the end."""
    found = outcome(ended(), seen(*WORK[:7]), SETTLED)
    assert found == Evidence(answer=None, stop_reason="stop", turns=2)


@pytest.mark.parametrize("problem", ["auth", "rate_limit", "overflow", "model", "other", "aborted", "tool", "budget"])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_giving_up_is_no_answer(problem: Problem, exit_code: int) -> None:
    """Whatever the exit code says. What it says of the model is its own word: it fails this attempt, and pauses no run."""
    found = outcome(ended(exit_code=exit_code), seen(*WORK, Complained(problem, "why", is_final=True)), SETTLED)
    assert isinstance(found, Failure)
    assert (found.kind, found.terminal, "why" in found.message) == ("agent_failed", False, True)


@pytest.mark.parametrize("items", [WORK, (*WORK, Complained("steps", "step limit", is_final=True))])
def test_an_outage_is_the_gateways_word(items: tuple[Item, ...]) -> None:
    """An agent that can write its own account, and a receipt, makes no end of it."""
    assert outcome(ended(), seen(*items), SETTLED.replaced(failure=DOWN)) == DOWN
    assert outcome(ended(exit_code=1), seen(*items), SETTLED.replaced(failure=DOWN)) == DOWN


@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize("is_final", [True, False])
def test_a_complaint_that_it_got_over_counts_for_nothing(exit_code: int, *, is_final: bool) -> None:
    """Some call every failed call final, and go on: with a reply of the model that is past."""
    found = outcome(ended(exit_code=exit_code), seen(Complained("model", "503", is_final=is_final), *WORK), SETTLED)
    assert isinstance(found, Failure if exit_code else Evidence)
    assert "503" not in str(found)


def test_a_complaint_explains_a_bad_end() -> None:
    found = outcome(ended(exit_code=1), seen(*WORK, Complained("model", "stream disconnected")), SETTLED)
    assert isinstance(found, Failure)
    assert "stream disconnected" in found.message


def test_its_own_bound_of_steps_is_an_end() -> None:
    final = Complained("steps", "max_turns", is_final=True)
    found = outcome(ended(exit_code=1), seen(*WORK, final), SETTLED)
    assert found == Evidence(answer="It is done.", stop_reason="max_steps", turns=2)
    for told_of in (Complained("steps", "max_turns"), final):
        settled = SETTLED if told_of != final else SETTLED.replaced(completed=0)
        assert isinstance(outcome(ended(exit_code=1), seen(*WORK, told_of), settled), Failure)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"ended_by": "timeout", "exit_code": None, "signal": 15}, "agent_timeout", "not finished after 2 s"),
        ({"ended_by": "stopped", "exit_code": None, "signal": 15}, "agent_failed", "a wish to stop"),
        ({"exit_code": None, "signal": 9}, "agent_failed", "signal 9"),
        ({"exit_code": 7, "stderr": "no such option\n"}, "agent_failed", "exit code 7; it said: no such option"),
    ],
)
def test_a_bad_end_is_a_failure_of_the_machinery(changes: dict[str, Any], kind: str, words: str) -> None:
    found = outcome(ended(**changes), seen(*WORK), SETTLED)
    assert isinstance(found, Failure)
    assert found.kind == kind
    assert words in found.message


def test_nothing_that_the_model_said_is_nothing_to_grade() -> None:
    found = outcome(ended(), seen(*WORK), SETTLED.replaced(completed=0))
    assert isinstance(found, Failure)
    assert "never heard" in found.message


def test_a_used_up_budget_ends_it_with_what_there_is() -> None:
    """How the program took the refusal does not matter."""
    settled = SETTLED.replaced(budget="rollout", limit="model_calls")
    found = outcome(ended(exit_code=1), seen(*WORK, Complained("budget", "used up", is_final=True)), settled)
    assert found == Evidence(answer="It is done.", stop_reason="budget:model_calls", turns=2)


def test_what_only_another_file_tells_counts() -> None:
    asides = (ToldItem(kind="complained", name="auth", text="401", is_final=True),)
    found = outcome(ended(asides=asides), seen(*WORK), SETTLED)
    assert isinstance(found, Failure)
    assert "401" in found.message


def test_every_kind_is_told() -> None:
    """Texts are bounded, and say so; a call's arguments are as they were written."""
    items: tuple[Item, ...] = (*WORK, Compacted(), Complained("other", "x"), ToolDone("c2", "y" * (TEXT_MAX_CHARS + 1)))
    kinds = [told(item).kind for item in items]
    assert set(kinds) == {
        "session", "said", "thought", "tool_asked", "tool_done", "reply_done", "compacted", "complained", "finished"
    }  # fmt: skip
    last = told(items[-1])
    assert (len(last.text or ""), last.is_cut) == (TEXT_MAX_CHARS, True)
    assert told(ToolAsked("c", "bash", '{"a": 1}')).text == '{"a": 1}'
    assert tuple(map(heard, map(told, items[:-1]))) == items[:-1], "what is short is kept as it was"


@pytest.mark.parametrize(
    "item",
    [
        Said("assistant", "half \ud83d"),
        ToolAsked("\ud800", "\udfff", "\ud83d"),
        ToolDone("c", "x", 10**400, duration_s=float("inf")),
        ToolDone("c", "x", duration_s=float("nan")),
        ReplyDone("r", 10**30, -1, 10**400, 5),
        ToolAsked("c" * 100_000, "n" * 100_000, "{}"),
    ],
)
def test_whatever_a_program_writes_can_be_stored(item: Item) -> None:
    """Half characters, numbers that are none or too large, names without an end."""
    made = told(item)
    assert ToldItem.model_validate_json(made.model_dump_json()) == made
    assert max(len(made.id or ""), len(made.name or "")) <= 256
    assert all(n is None or 0 <= n <= 2**53 for n in (made.input_tokens, made.output_tokens, made.cached_tokens))


def test_a_port_is_no_status() -> None:
    """The class of a complaint is told by its words, not by the address that was called."""
    assert complaint("http://127.0.0.1:40123/v1/responses answered 500").problem == "model"
    assert complaint("unexpected status 401 Unauthorized: http://127.0.0.1:5000/x").problem == "auth"


@pytest.mark.parametrize("changes", [{"exit_code": 3}, {"exit_code": None, "signal": 9}, {"ended_by": "timeout"}])
def test_the_result_of_a_worker_counts_however_its_process_ends(changes: dict[str, Any]) -> None:
    """A runner of ours tells it last; a program's own word that it is done is no such thing."""
    found = outcome(ended(**changes), seen(*WORK), SETTLED, is_worker=True)
    assert found == Evidence(answer="It is done.", stop_reason="stop", turns=2)
    assert isinstance(outcome(ended(**changes), seen(*WORK), SETTLED), Failure)


@pytest.mark.parametrize("changes", [{}, {"exit_code": 3}, {"ended_by": "timeout"}, {"ended_by": "stopped"}])
def test_a_worker_without_a_result_has_not_done_its_work(changes: dict[str, Any]) -> None:
    """What it told before is partial: it is kept, and never graded."""
    found = outcome(ended(**changes), seen(*WORK[:-1]), SETTLED, is_worker=True)
    assert isinstance(found, Failure)
    assert found.kind == ("agent_timeout" if changes.get("ended_by") == "timeout" else "agent_failed")


def test_a_result_that_was_not_kept() -> None:
    """Of more output than is kept the result is not there, and an end by itself is believed."""
    found = outcome(ended(stdout_bytes=STDOUT_MAX_BYTES + 1), seen(*WORK[:-1]), SETTLED, is_worker=True)
    assert isinstance(found, Evidence)


@pytest.mark.parametrize(
    ("changes", "settled"),
    [({"is_clean": False}, SETTLED), ({}, SETTLED.replaced(failure=DOWN)), ({}, SETTLED.replaced(completed=0))],
)
def test_what_counts_before_a_workers_result(changes: dict[str, Any], settled: LaunchSettled) -> None:
    """Something of it that still runs, a model that failed, and one that was never heard."""
    assert isinstance(outcome(ended(**changes), seen(*WORK), settled, is_worker=True), Failure)


@pytest.mark.parametrize("changes", [{}, {"exit_code": 1}, {"ended_by": "timeout"}])
def test_a_recording_that_does_not_hold_a_call_is_the_reason(changes: dict[str, Any]) -> None:
    """Whatever the program made of it: it is not tried again, and its words are those of the recording."""
    differs = Failure(kind="replay_diverged", message="call 2, message 3", stage="model", terminal=True)
    found = outcome(ended(**changes), seen(*WORK), SETTLED.replaced(failure=differs), is_worker=True)
    assert found == differs
