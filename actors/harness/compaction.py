"""When a session's prompts become shorter, and what they show then.

All is decided from what is folded, so that whoever takes a session over does the same. A view of the context is made between an
answer that was dealt with and the next model call, at most once between two answers. The call that follows continues none: it begins a
context of its own, and says all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from actors.harness.recency import Omissions, omissions
from actors.harness.state import SessionState
from gym_bus.event_log import Draft
from schemas.events import ContextCompacted
from schemas.loops import BrowsecompAgent, CompactingAgent, ContextHistory
from schemas.values import Message

NO_SUMMARY: Final = "compaction_summary_unavailable"
SUMMARISED: Final = "Earlier steps are not shown any longer. This is what you wrote down about them:\n\n{}"
NOT_SUMMARISED: Final = "Earlier steps are not shown any longer, and nothing was written down about them."
RESET: Final = (
    "Your context was full, and has begun anew: earlier steps are not shown any longer. Your notes so far:\n\n{}"
)
RESET_WITHOUT_NOTES: Final = "Your context was full, and has begun anew: earlier steps are not shown any longer."
NO_NOTES: Final = "(none)"


def asked(state: SessionState) -> tuple[Message, ...]:
    """Return what the next model call is told: the prompt, and the wish for a summary if there is to be one."""
    history = _history(state)
    if history and history.summary and wants_summary(state):
        return (*state.prompt, Message(role="user", content=history.summary.prompt))
    return state.prompt


def wants_summary(state: SessionState) -> bool:
    """Say whether the next model call is to write a summary: the prompt is too long, and there is something to leave out."""
    history = _history(state)
    if history is None or history.summary is None or not _is_between(state) or state.summary:
        return False
    bound = history.guards.prompt_max_tokens
    return bound is not None and state.context_tokens > bound and can_shrink(state)


def is_full(state: SessionState) -> bool:
    """Say whether a context is to begin anew: it is full, and there is something to leave out."""
    agent = state.agent
    if not isinstance(agent, BrowsecompAgent) or not _is_between(state) or state.warned == state.turn:
        return False
    return (state.warned > 0 or state.context_tokens > agent.full_at_tokens) and can_shrink(state)


def can_shrink(state: SessionState) -> bool:
    """Say whether a prompt that the model refused as too long can be made shorter, by all that is not of the last rounds."""
    agent, history = state.agent, _history(state)
    if isinstance(agent, BrowsecompAgent):
        return (
            state.context.resets < agent.max_reset_count
            and cut_after(state, agent.context_reset_keep_rounds) is not None
        )
    if history is None or history.summary is None or state.context.summaries >= history.summary.max_summaries:
        return False
    return cut_after(state, history.summary.keep_last_rounds) is not None


def cut_after(state: SessionState, rounds: int) -> int | None:
    """Return from where on the last `rounds` answers and what followed them are shown, None if nothing is left out by that."""
    first = max(state.context.start, state.given)
    answers = [n for n, m in enumerate(state.messages) if n >= first and m.role == "assistant"]
    return answers[-rounds] if len(answers) > rounds else None


def compact(state: SessionState) -> Sequence[Draft]:
    """State the view of the context that holds from now on, if it is to be another one."""
    if not (_is_between(state) or state.is_overflown):
        return ()
    history = _history(state)
    if history and history.summary and (state.summary or state.is_overflown):
        return (_summarised(state, history.summary.keep_last_rounds),)
    if isinstance(state.agent, BrowsecompAgent) and (is_full(state) or state.is_overflown):
        return (_reset(state, state.agent),)
    if history is None or not _is_time(state, history):
        return ()
    left_out = omissions(state.messages, state.context, state.given, history.policy)
    return (_recent(state, left_out),) if left_out.edited else ()


def note(state: SessionState, data: ContextCompacted) -> SessionState:
    """Begin a context of its own: what is shown from now on was not said to the model in this way."""
    if data.number != state.context.number + 1:
        return state
    return state.replaced(
        context=state.context.compacted(data, state.steps),
        summary=None,
        sent=0,
        continues=None,
        context_digest="",
        context_tokens=0,
        is_overflown=False,
        warned=0,
    )


def _history(state: SessionState) -> ContextHistory | None:
    agent = state.agent
    return agent.context_history if isinstance(agent, CompactingAgent) and agent.context_history.enabled else None


def _is_between(state: SessionState) -> bool:
    """Say whether what was answered is dealt with, and the next call, but for one that writes a summary, is not asked yet."""
    is_asked = state.call_tries > 0 and state.purpose is None
    return not (state.slots or state.stop_reason or is_asked)


def _is_time(state: SessionState, history: ContextHistory) -> bool:
    if history.policy.type == "identity" or wants_summary(state) or state.call_tries:
        return False
    schedule = history.schedule
    since = state.steps - state.context.steps
    return schedule.type == "rolling_recency" or since >= schedule.actions_per_chunk


def _recent(state: SessionState, left_out: Omissions) -> Draft:
    return _draft(
        state,
        ContextCompacted(
            number=state.context.number + 1,
            policy="recency",
            turn=state.turn,
            tokens_before=state.context_tokens or None,
            edited=left_out.edited,
            images=left_out.images,
            reasoning_blocks=left_out.reasoning_blocks,
            tool_results=left_out.tool_results,
        ),
    )


def _summarised(state: SessionState, keep_rounds: int) -> Draft:
    summary = state.summary
    text = summary.text if summary else None
    words = SUMMARISED.format(text) if text else NOT_SUMMARISED
    compacted = _without_the_old(state, "summary", keep_rounds, words)
    told = compacted.replaced(summary_call=summary and summary.call_id, gaps=() if text else (NO_SUMMARY,))
    return _draft(state, told)


def _reset(state: SessionState, agent: BrowsecompAgent) -> Draft:
    words = RESET.format(state.progress or NO_NOTES) if agent.progress else RESET_WITHOUT_NOTES
    return _draft(state, _without_the_old(state, "reset", agent.context_reset_keep_rounds, words))


def _without_the_old(state: SessionState, policy: str, keep_rounds: int, words: str) -> ContextCompacted:
    first = max(state.context.start, state.given)
    start = cut_after(state, keep_rounds)
    return ContextCompacted.model_validate(
        {
            "number": state.context.number + 1,
            "policy": policy,
            "turn": state.turn,
            "tokens_before": state.context_tokens or None,
            "start": first if start is None else start,
            "inserted": (Message(role="user", content=words),),
            "messages": 0 if start is None else start - first,
        }
    )


def _draft(state: SessionState, data: ContextCompacted) -> Draft:
    return Draft(data, state.last_call or state.request_id, str(data.number))
