"""What a loop says to its model by itself: that an answer is not taken yet, and that the context is about to begin anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from actors.harness.compaction import is_full
from actors.harness.state import SessionState
from gym_bus.event_log import Draft
from schemas.events import AgentNudged
from schemas.loops import BrowsecompAgent
from schemas.values import Message
from tools.progress import PROGRESS

ANSWER_SEARCHED_CHARS: Final = 4096
"""How much of an answer's end is searched for what `answer_pattern` finds."""

Reason = Literal["empty_answer", "cut_answer", "wanted_form", "reset_near"]

TEXTS: Final[dict[Reason, str]] = {
    "empty_answer": "You stopped without an answer. Go on with the task; when you are done, give your final answer.",
    "cut_answer": "Your answer was cut off because it was too long. Go on with the task, in fewer words.",
    "wanted_form": (
        "That is not the form in which the final answer is wanted. Go on if you are not done; else give it in the form asked for."
    ),
    "reset_near": (
        "Your context is nearly full. After your next message it begins anew, and you will see your notes and the last few steps only. "
        f"Call {PROGRESS.name} now with all that you want to keep."
    ),
}


def refuse(state: SessionState) -> Sequence[Draft]:
    """Say why an answer is not taken, if it is not and there is a call left for another one."""
    agent = state.agent
    if not isinstance(agent, BrowsecompAgent) or not agent.nudge_steps or state.steps >= agent.max_steps:
        return ()
    reason = _fault(state, agent.answer_pattern)
    refused = state.nudges - state.warnings
    return (_said(state, reason),) if reason and refused < agent.max_nudges else ()


def warn(state: SessionState) -> Sequence[Draft]:
    """Say that the context is nearly full, once before it begins anew, if the model can write something down."""
    agent = state.agent
    if not isinstance(agent, BrowsecompAgent) or not agent.progress or state.warned or not is_full(state):
        return ()
    return (_said(state, "reset_near"),) if state.steps < agent.max_steps - 1 else ()


def note(state: SessionState, data: AgentNudged) -> SessionState:
    """Note what was said: the model is asked again."""
    if data.number != state.nudges + 1:
        return state
    is_warning = data.reason == "reset_near"
    return state.replaced(
        messages=(*state.messages, Message(role="user", content=data.text)),
        nudges=data.number,
        stop_reason=None,
        warned=data.turn if is_warning else state.warned,
        warnings=state.warnings + is_warning,
    )


def last_answer(state: SessionState) -> str | None:
    """Return the last answer, if no tool was called in it; what the loop said after it does not count."""
    told = state.messages[state.given :]
    said = [m for m in told if m.role != "user"] if state.nudges else told
    if not said or said[-1].role != "assistant" or said[-1].tool_calls:
        return None
    return said[-1].content


def _fault(state: SessionState, pattern: str | None) -> Reason | None:
    last = state.messages[-1]
    if last.role != "assistant" or state.stop_reason not in {"stop", "length"}:
        return None
    text = last.content or ""
    if state.stop_reason == "length":
        return "cut_answer"
    if not text.strip():
        return "empty_answer"
    return "wanted_form" if pattern and not re.search(pattern, text[-ANSWER_SEARCHED_CHARS:]) else None


def _said(state: SessionState, reason: Reason) -> Draft:
    nudged = AgentNudged(number=state.nudges + 1, reason=reason, turn=state.turn, text=TEXTS[reason])
    return Draft(nudged, state.last_call or state.request_id, str(nudged.number))
