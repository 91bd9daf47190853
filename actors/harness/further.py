"""Further inputs of any session: those of its task, and those that somebody gives from outside while it waits for them.

A session says of each that is given whether it takes it. What it took before, by number and fingerprint, it does not take again: the
answer is in its log. Nothing is remembered elsewhere, so all of it holds for whoever takes the session over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from actors.harness.activations import Begin, Refused
from actors.harness.core import Core, Offered, SessionCore
from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Alarm, AwaitAnswer, Effect
from schemas.envelope import Envelope
from schemas.events import ActivationAsked, ActivationRefused, ActivationStarted, InputEnded, SessionEndAsked
from schemas.tasks import FOLLOW_UPS_MAX, fingerprint_of, words_of_the_user
from schemas.values import Message

Cannot = Callable[[tuple[Message, ...]], str | None]
OFFERED_MAX: Final = 16
"""So many inputs may wait to be judged; what comes beyond is refused."""

CROWDED: Final = f"{OFFERED_MAX} inputs wait to be judged already: give it again"
HEARD_MAX: Final = 1024
"""An event may be heard more than once; of so many it is known."""


def note(state: Core, event: Envelope) -> Core:
    """Fold what was said of further inputs."""
    data = event.data
    match data:
        case ActivationAsked() if event.event_id not in state.heard:
            return _offered(state, event.event_id, data)
        case ActivationRefused():
            return state.replaced(
                offered=tuple(one for one in state.offered if one.asked_id != data.asked_id),
                crowded=tuple(one for one in state.crowded if one[0] != data.asked_id),
            )
        case SessionEndAsked():
            return state.replaced(is_enough=True)
        case InputEnded() if state.course.is_between and state.evidence is None:
            answer = state.course.taken[-1].answer
            return state.replaced(is_enough=True, evidence=state.course.whole(answer) if answer else None)
        case _:
            return state


def _offered(state: Core, asked_id: str, data: ActivationAsked) -> Core:
    """Note an input that came from outside, unless it is taken by now."""
    given = Offered(asked_id=asked_id, activation=data.activation, fingerprint=data.fingerprint, messages=data.messages)
    heard = state.replaced(heard=(*state.heard, asked_id)[-HEARD_MAX:])
    if not isinstance(state.course.judged(given.activation, given.fingerprint), Begin | Refused):
        return heard
    if len(state.offered) < OFFERED_MAX:
        return heard.replaced(offered=(*state.offered, given))
    return heard.replaced(crowded=(*state.crowded, (asked_id, given.activation))[-HEARD_MAX:])


def begun(state: Core, event: Envelope, data: ActivationStarted) -> Core:
    """Note that the next input is taken; the same state if it is not."""
    course = state.course.begun(data.activation, data.fingerprint)
    if course == state.course:
        return state
    left = tuple(
        one for one in state.offered if (one.activation, one.fingerprint) != (data.activation, data.fingerprint)
    )
    return state.replaced(course=course, asked_at=event.recorded_at, messages_asked=data.messages, offered=left)


def refusals(state: SessionCore, cannot: Cannot = lambda _: None) -> Sequence[Draft]:
    """State what is not taken of the inputs that were given; `cannot` says why the agent could not deal with one."""
    refused = [
        (one.asked_id, one.activation, reason) for one in state.offered if (reason := _why_not(state, one, cannot))
    ]
    refused += [(*one, CROWDED) for one in state.crowded]
    return [Draft(ActivationRefused(asked_id=of, activation=number, reason=why), of) for of, number, why in refused]


def _why_not(state: SessionCore, given: Offered, cannot: Cannot) -> str | None:
    judged = state.course.judged(given.activation, given.fingerprint)
    if isinstance(judged, Refused):
        return judged.reason
    if not isinstance(judged, Begin):
        return None
    task = state.request.task
    own = len(task.follow_ups)
    reasons = {
        "the session takes no further input: it ends": state.failure or state.evidence or state.is_enough,
        f"activation {given.activation} is the task's own: it has {own} follow_ups": given.activation <= own + 1,
        "the session waits for no input from outside: its task has no awaits_input_s": task.awaits_input_s is None,
        f"a session takes {FOLLOW_UPS_MAX + 1} inputs at most": given.activation > FOLLOW_UPS_MAX + 1,
        "the fingerprint is not that of the input": given.fingerprint != fingerprint_of(given.messages),
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    return found or _not_words(given.messages) or cannot(given.messages)


def _not_words(messages: tuple[Message, ...]) -> str | None:
    try:
        words_of_the_user(messages)
    except ValueError as error:
        return str(error)
    return None


def go_on(state: SessionCore, now: datetime) -> Sequence[Draft]:
    """Take the next input, if there is one: the task's own first; end the session if there will be none."""
    task, index = state.request.task, state.activation + 1
    if state.activation <= len(task.follow_ups):
        messages = task.follow_ups[index - 2]
        started = ActivationStarted(activation=index, fingerprint=fingerprint_of(messages), messages=messages)
        return (Draft(started, state.activation_id),)
    for one in state.offered:
        if isinstance(state.course.judged(one.activation, one.fingerprint), Begin) and not state.is_enough:
            started = ActivationStarted(activation=index, fingerprint=one.fingerprint, messages=one.messages)
            return (Draft(started, one.asked_id),)
    if state.is_enough or now >= _until(state):
        return (Draft(InputEnded(by="asked" if state.is_enough else "timeout"), state.activation_id),)
    return ()


def waiting(state: SessionCore) -> Sequence[Effect]:
    """Say what must be going on between two activations: somebody may say something, until the time is over."""
    if state.activation <= len(state.request.task.follow_ups):
        return ()
    return (AwaitAnswer("answers"), Alarm("input", _until(state)))


def _until(state: SessionCore) -> datetime:
    return (state.waits_since or state.asked_at) + timedelta(seconds=state.request.task.awaits_input_s or 0)
