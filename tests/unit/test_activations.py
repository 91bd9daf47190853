"""Which input a session takes: the next one, once; the same again is the same; anything else is refused with the reason."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from actors.harness.activations import (
    Begin,
    Course,
    Refused,
    Taken,
    begun_with,
    fingerprint_of,
    is_last,
)
from schemas.tasks import Evidence, TaskInput
from schemas.values import Failure, Message

FIRST = (Message(role="user", content="Do it."),)
SECOND = (Message(role="user", content="And this."),)
TASK = TaskInput(task_id="t", messages=FIRST, follow_ups=(SECOND,))
ANSWER = Evidence(answer="Done.", stop_reason="stop", turns=3)
BROKEN = Failure(kind="agent_timeout", message="late")
ONE, TWO = fingerprint_of(FIRST), fingerprint_of(SECOND)


def answered() -> Course:
    """Return a course whose first activation has its answer."""
    return begun_with(TASK).ended(1, ANSWER)


def reason(course: Course, index: int, fingerprint: str) -> str:
    found = course.judged(index, fingerprint)
    assert isinstance(found, Refused), found
    return found.reason


def test_the_next_input_is_taken_when_the_one_before_has_its_answer() -> None:
    assert answered().judged(2, TWO) == Begin()
    assert answered().begun(2, TWO).current == 2


def test_the_same_input_again_is_given_the_original_answer() -> None:
    """Also while a later one is under way, and also if the answer was a failure; while it has none it is joined."""
    later = answered().begun(2, TWO)
    known = later.judged(1, ONE)
    assert isinstance(known, Taken)
    assert known.answer == ANSWER
    joined = later.judged(2, TWO)
    assert isinstance(joined, Taken)
    assert joined.is_open
    failed = later.ended(2, failure=BROKEN).judged(2, TWO)
    assert isinstance(failed, Taken)
    assert failed.failure == BROKEN


def test_another_input_with_the_same_number_is_refused() -> None:
    assert "was given another input" in reason(answered(), 1, TWO)


@pytest.mark.parametrize("index", [0, -1, 3, 9])
def test_a_number_out_of_order_is_refused(index: int) -> None:
    assert "the next one is 2" in reason(answered(), index, TWO)


def test_an_input_while_another_is_under_way_is_refused() -> None:
    assert "activation 1 is still under way" in reason(begun_with(TASK), 2, TWO)


def test_an_input_after_a_failed_one_is_refused() -> None:
    assert "activation 1 failed (agent_timeout)" in reason(begun_with(TASK).ended(1, failure=BROKEN), 2, TWO)


def test_what_is_refused_changes_nothing() -> None:
    """Neither does an end that was known, or of one that was never begun."""
    course = answered()
    assert course.begun(1, TWO) == course.begun(3, TWO) == course.begun(1, ONE) == course
    assert course.ended(1, failure=BROKEN) == course.ended(2, ANSWER) == course


def test_the_record_is_cumulative() -> None:
    """The last answer, the turns of all; a session of one input needs no list."""
    course = answered().begun(2, TWO).ended(2, ANSWER.replaced(turns=4, answer="Both."))
    last = course.taken[-1].answer
    assert last
    assert course.whole(last) == Evidence(answer="Both.", stop_reason="stop", turns=7)
    assert [(d.activation, d.fingerprint, d.turns) for d in course.record()] == [(1, ONE, 3), (2, TWO, 4)]
    assert answered().record() == ()


def test_which_activation_is_the_last() -> None:
    """What ends a session early is a limit that would stop the next activation too; one that waits has no last one."""
    waiting = TASK.model_copy(update={"awaits_input_s": 60.0})
    assert (is_last(waiting, 2, ANSWER), is_last(waiting, 2, ANSWER.replaced(stop_reason="max_steps"))) == (False, True)
    assert (is_last(TASK, 1, ANSWER), is_last(TASK, 2, ANSWER)) == (False, True)
    assert is_last(TASK, 1, ANSWER.replaced(stop_reason="budget:model_calls"))
    assert is_last(TASK, 1, ANSWER.replaced(stop_reason="max_steps"))


@pytest.mark.parametrize("message", [Message(role="assistant", content="x"), Message(role="user", content=" ")])
def test_a_further_input_is_words_of_the_user(message: Message) -> None:
    with pytest.raises(ValidationError):
        TaskInput(task_id="t", messages=FIRST, follow_ups=((message,),))
    with pytest.raises(ValidationError):
        TaskInput(task_id="t", messages=FIRST, follow_ups=((),))
