"""A session that waits takes what it is given from outside, once, and says why it does not take the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from actors.harness.launched import LaunchedState
from gym_bus.inputs import NoAnswerYet, Standing, give
from gym_bus.runtime.machine import Alarm
from schemas.events import (
    ActivationAsked,
    ActivationCompleted,
    ActivationRefused,
    ActivationStarted,
    InputEnded,
    LaunchRequested,
    SandboxCloseRequested,
    SessionEndAsked,
)
from schemas.harnesses import HermesAgent
from schemas.tasks import TaskInput, fingerprint_of
from schemas.values import Message
from tests.support.examples import AT
from tests.support.machine_case import Case, envelope
from tests.unit.test_launched_activations import FILES, NEXT, SAVED, TASK, kept, ran, started

WAITING = TASK.model_copy(update={"follow_ups": (), "awaits_input_s": 60.0})
OTHER = (Message(role="user", content="Something else."),)


def asked(number: int = 2, messages: Any = NEXT, **changes: Any) -> ActivationAsked:
    return ActivationAsked(activation=number, fingerprint=fingerprint_of(messages), messages=messages).replaced(
        **changes
    )


def waiting(task: TaskInput = WAITING, **changes: Any) -> Case[LaunchedState]:
    """Return a session whose first activation was completed at `AT`."""
    case = kept(task=task, **changes)
    (completed,) = case.decided
    assert isinstance(completed, ActivationCompleted)
    return case.given(("done", completed))


def test_it_waits_until_somebody_says_something_or_the_time_is_over() -> None:
    case = waiting()
    assert case.decided == []
    assert Alarm("input", AT + timedelta(seconds=60)) in case.machine.pending(case.state)
    assert case.after_s(61).decided == [InputEnded(by="timeout")]


def test_what_is_given_is_taken_and_has_a_launch_of_its_own() -> None:
    """It goes on with the program's session, like a further input of the task."""
    case = waiting().given(("said", asked()))
    (begun,) = case.decided
    assert begun == ActivationStarted(activation=2, fingerprint=fingerprint_of(NEXT), messages=NEXT)
    (launch,) = case.given(("next", begun)).decided
    assert isinstance(launch, LaunchRequested)
    assert (launch.activation, launch.prompt, launch.resume) == (2, "And this.", "s-1")


def test_the_same_again_is_nothing_new() -> None:
    """Neither while it is judged, nor when it is under way."""
    case = waiting().given(("said", asked()), ("again", asked()))
    (begun,) = case.decided
    case = case.given(("next", begun))
    assert case.state.offered == ()
    (launch,) = case.given(("later", asked())).decided
    assert isinstance(launch, LaunchRequested)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (asked(1, OTHER), "activation 1 was given another input before"),
        (asked(3), "activation 3 is out of order: the next one is 2"),
        (asked(fingerprint="00" * 32), "the fingerprint is not that of the input"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(given: ActivationAsked, reason: str) -> None:
    """It uses up no number: what fits is taken after it."""
    case = waiting().given(("said", given))
    refused = ActivationRefused(asked_id="said", activation=given.activation, reason=reason)
    assert case.decided == [refused]
    case = case.given(("no", refused), ("fits", asked()))
    assert [type(event) for event in case.decided] == [ActivationStarted]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ((), "messages of the user"),
        ((Message(role="user", content=" "),), "messages of the user"),
        ((Message(role="assistant", content="I did."),), "messages of the user"),
        ((Message(role="user", content="a\0b"),), "cannot be given a NUL"),
        ((Message(role="user", content=200_000 * "x"),), "an argument of more than 131071 bytes"),
    ],
)
def test_what_no_program_can_be_given_is_refused(messages: Any, reason: str) -> None:
    """As a further input of the task is before anything starts; the session goes on, and takes what fits."""
    case = waiting(agent=HermesAgent()).given(("said", asked(2, messages)))
    (refused,) = case.decided
    assert isinstance(refused, ActivationRefused)
    assert reason in refused.reason
    assert [type(event) for event in case.given(("no", refused), ("fits", asked())).decided] == [ActivationStarted]


def test_everybody_who_gives_one_hears_what_becomes_of_it() -> None:
    """Also of a crowd, whose words a new owner finds in the log at once: one is taken, the same words with it, the rest refused."""
    said = [(Message(role="user", content=f"I am {n}."),) for n in range(40)]
    case = waiting().given(
        *((f"said{n}", asked(messages=words)) for n, words in enumerate(said)), ("same", asked(messages=said[0]))
    )
    refused: list[str] = []
    for _ in range(50):
        decided = case.decided
        if isinstance(decided[0], LaunchRequested):
            break
        refused += [event.asked_id for event in decided if isinstance(event, ActivationRefused)]
        case = case.given(*((f"{event.TYPE}{len(refused)}{n}", event) for n, event in enumerate(decided)))
    assert case.state.course.current == 2
    answered = {"same", "said0", *refused}
    assert answered == {"same", *(f"said{n}" for n in range(40))}
    assert len(refused) == len(set(refused))
    assert (case.state.offered, case.state.crowded) == ((), ())


def test_what_is_heard_twice_is_refused_once() -> None:
    """By live delivery, and out of the log."""
    case = waiting().given(("said", asked(3)))
    case = case.given(("no", case.decided[0]), ("said", asked(3)))
    assert case.decided == []


def test_nothing_is_taken_while_another_is_under_way() -> None:
    case = waiting().given(("said", asked()))
    case = case.given(("next", case.decided[0]), ("early", asked(3, OTHER)))
    refused = case.decided[0]
    assert isinstance(refused, ActivationRefused)
    assert refused.reason == "activation 2 is still under way"


def test_a_task_that_waits_for_nothing_takes_nothing() -> None:
    """Not in the place of its own inputs either."""
    (own,) = started().given(("said", asked(2, OTHER))).decided[:1]
    assert isinstance(own, ActivationRefused)
    assert "was given another input" in own.reason
    both = waiting(TASK.model_copy(update={"awaits_input_s": 60.0})).given(("said", asked(2, OTHER)))
    assert isinstance(both.decided[0], ActivationRefused)
    assert both.decided[0].reason == "activation 2 is the task's own: it has 1 follow_ups"


def test_an_end_that_was_asked_for_waits_for_what_is_under_way() -> None:
    """The last answer counts, with the turns of all, and the files are those that were kept after it."""
    case = waiting().given(("said", asked()))
    case = case.given(("next", case.decided[0]))
    case = case.given(("go2", case.decided[0]), ("enough", SessionEndAsked()), *ran("go2", 2, None))
    case = case.given(("keep2", case.decided[0]), SAVED.replaced(request_id="keep2"))
    case = case.given(("done2", case.decided[0]))
    (ended,) = case.decided
    assert ended == InputEnded(by="asked")
    case = case.given(("ended", ended))
    assert [type(event) for event in case.decided] == [SandboxCloseRequested]
    assert case.state.evidence
    assert (case.state.evidence.answer, case.state.evidence.turns, case.state.files) == ("Done by go2.", 5, FILES)


def test_an_ending_session_takes_nothing() -> None:
    case = waiting().given(("enough", SessionEndAsked()), ("said", asked()))
    (refused,) = case.decided
    assert isinstance(refused, ActivationRefused)
    assert refused.reason == "the session takes no further input: it ends"


def test_the_wait_begins_anew_after_each_answer() -> None:
    case = waiting().given(("said", asked()))
    case = case.given(("next", case.decided[0]))
    case = case.given(("go2", case.decided[0]), *ran("go2", 2, None))
    case = case.given(("keep2", case.decided[0]), SAVED.replaced(request_id="keep2"))
    late = AT + timedelta(seconds=100)
    case = case.given(envelope(case.decided[0], "done2").replaced(recorded_at=late))
    assert case.after_s(159).decided == []
    assert case.after_s(161).decided == [InputEnded(by="timeout")]


class _Silent:
    """A log in which nothing is new."""

    def __init__(self) -> None:
        self.bus, self.codec = self, self

    async def read(self, _subject: str, *, after: int) -> AsyncIterator[Any]:
        for _ in range(after, after):
            yield

    def cleaned(self, words: str) -> str:
        return words


@pytest.mark.parametrize(
    ("taken", "number", "said"),
    [
        (1, None, "activation 1 has no answer in that time, so this was not given"),
        (2, 2, "say the same with --activation 2 to wait for it"),
    ],
)
async def test_who_waits_in_vain_is_told_the_number(taken: int, number: int | None, said: str) -> None:
    """Of what was given, to wait for it again; what could not be given yet has none."""
    words: Any = "And now?"
    of_words = fingerprint_of((Message(role="user", content=words),))
    standing = Standing(
        "r1", "0-0", attempt=1, is_waiting_allowed=True, fingerprints=dict.fromkeys(range(1, taken + 1), of_words)
    )
    log: Any = _Silent()
    with pytest.raises(NoAnswerYet, match=said):
        await give(log, standing, words, activation=number, within_s=0)
