"""Why generated tokens are in no row, one code for each call that has any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from projections.samples.call import Call

PARENT_AMBIGUOUS: Final = "parent_ambiguous"
"""The gateway's code for a call that fits two parents."""

TRIES_UNRESOLVED: Final = "tries_unresolved"
"""Of several answers to the same question the log does not say which one was used."""

NOTHING_GENERATED: Final = "nothing_generated"


@dataclass(frozen=True, slots=True)
class Tries:
    """What became of questions that were answered more than once: ids of calls."""

    abandoned: frozenset[str]
    unresolved: frozenset[str]


def tries_of(calls: Iterable[Call]) -> Tries:
    """Return which answers were abandoned: the same was asked of the same parent, another answer was continued, this one was not.

    If none was continued, or only by calls that fit several parents, nobody can say: those that were not are `unresolved`.
    """
    calls = list(calls)
    questions: dict[tuple[str, str | None, str, str | None], list[str]] = {}
    continued: set[str | None] = set()
    for call in calls:
        if PARENT_AMBIGUOUS not in call.gaps:
            continued.add(call.parent_id)
        if call.state == "completed":
            question = (call.conversation, call.parent_id, call.context_digest, call.tools_digest)
            questions.setdefault(question, []).append(call.id)
    abandoned: set[str] = set()
    unresolved: set[str] = set()
    for answers in questions.values():
        if len(answers) > 1:
            found = abandoned if continued.intersection(answers) else unresolved
            found.update(answer for answer in answers if answer not in continued)
    return Tries(frozenset(abandoned), frozenset(unresolved))


def reason_of(call: Call, tries: Tries) -> str | None:
    """Return why a call cannot be trained, None if it can.

    It is the first that holds of `unanswered`, `late`, `failed`, `lost`; `untrainable:<code>` as recorded; `no_token_ids`,
    `chain_broken`, `nothing_generated`, `lengths_differ`, `logprobs_not_finite`; `unread`, `abandoned_try`.
    """
    if call.state != "completed":
        return "late" if call.is_late else "unanswered" if call.state == "open" else call.state
    if call.untrainable is not None:
        return f"untrainable:{call.untrainable}"
    return _of_tokens(call) or ("unread" if call.is_unread else "abandoned_try" if call.id in tries.abandoned else None)


def _of_tokens(call: Call) -> str | None:
    tokens = call.tokens
    if tokens is None:
        return "no_token_ids"
    if tokens.ids is None:
        return "chain_broken"
    if not tokens.generated:
        return NOTHING_GENERATED
    if len(tokens.logprobs) != len(tokens.generated):
        return "lengths_differ"
    return None if call.logprobs is not None else "logprobs_not_finite"


def reasons_of(calls: Iterable[Call], tries: Tries) -> Mapping[str, str]:
    """Return the reason of each call that has one."""
    return {call.id: reason for call in calls if (reason := reason_of(call, tries))}


def tokens_of(call: Call) -> int | None:
    """Return how many tokens a call generated: of its ids, else as the backend counted; None where nobody knows."""
    return 0 if call.is_refused else call.output_tokens
