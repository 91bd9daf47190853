"""What earlier launches of a program asked and were answered, found again by what a later one asks.

A program that begins an activation anew, from the same files, asks the same questions as long as it is told the same. A question is
all that the model sees: its turns, in the form by which calls are told to continue each other (`lineage`), without what the harness
writes anew each time (`adapters/harnesses/anew.py`); its tools; its parameters, but for how the answer is sent. Ids that a client
makes for itself stand in none of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from actors.gateway.answers import parameters_of, tools_digest
from actors.gateway.grants import Grant
from actors.gateway.unknown_fields import GOES_ON_FROM, OTHERS
from adapters.harnesses.anew import without
from providers.dialects.digests import ROOT, chained, continued_reply, turn_digest
from providers.models.recorded_answer import parts_of
from schemas.conversation import Hosted, Request, ToolResult, Turn
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallRecalled, ModelCallRequested

SENDING: Final = frozenset({"is_streamed", "wants_usage", OTHERS})
"""Parameters that say how an answer is sent, and change nothing of it; and those that are compared by their digest."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a model is asked: digests of the conversation and the tools, and the parameters."""

    link: str
    tools_digest: str | None
    parameters: str


@dataclass(frozen=True, slots=True)
class _Asked:
    question: Question
    activation: int
    launch: int


class Recollection:
    """See the module. Each launch is given each answer once: of several to one question the first that was read, then the next."""

    def __init__(self, anew: Sequence[re.Pattern[str]]) -> None:
        """Begin with nothing; what `anew` finds in results of tools counts for nothing."""
        self._anew = anew
        self._asked: dict[str, _Asked] = {}
        self._links: dict[str, str] = {}
        self._replies: dict[str, str] = {}
        self._answers: dict[tuple[int, Question], list[ModelCallCompleted]] = {}
        self._given: set[tuple[str, int]] = set()

    def note(self, event: Envelope) -> None:
        """Take in an event of the conversation."""
        match event.data:
            case ModelCallRequested() as asked:
                begin = self._links.get(asked.parent_id or "") or _elsewhere(asked) or ROOT
                link = self._link(asked.new_turns, begin)
                question = Question(link, asked.tools_digest, _told(asked.parameters))
                self._asked[event.event_id] = _Asked(question, asked.activation, asked.launch)
            case ModelCallCompleted() as done if done.request_id in self._asked:
                call = self._asked[done.request_id]
                after = chained([turn_digest("assistant", parts_of(done))], call.question.link)[0]
                self._links[done.request_id] = after
                if done.reply_id:
                    self._replies[done.reply_id] = after
                if not _may_be_a_pause(done):
                    self._answers.setdefault((call.activation, call.question), []).append(done)
            case ModelCallRecalled() as recalled:
                self._given.add((recalled.call_id, recalled.launch))
            case _:
                pass

    def find(self, request: Request, grant: Grant) -> ModelCallCompleted | None:
        """Return the answer that a launch before `grant`'s had to this question and that was not given to `grant`'s yet."""
        named = continued_reply(request)
        begin = self._replies.get(named, named) if named else ROOT
        question = Question(self._link(request.turns, begin), tools_digest(request), _told(parameters_of(request)))
        found = [
            done
            for done in self._answers.get((grant.activation, question), ())
            if self._asked[done.request_id].launch < grant.launch and (done.request_id, grant.launch) not in self._given
        ]
        return min(found, key=lambda done: done.is_unread, default=None)

    def _link(self, turns: Sequence[Turn], begin: str = ROOT) -> str:
        plain = [without(self._anew, turn) for turn in turns]
        digests = [turn_digest(turn.role, turn.parts, turn.name) + _failed(turn) for turn in plain]
        return [begin, *chained(digests, begin)][-1]


def _may_be_a_pause(done: ModelCallCompleted) -> bool:
    """Say whether an answer may have ended as a pause of Messages, which the log does not tell from an end."""
    hosted = [part for part in parts_of(done) if isinstance(part, Hosted) and part.dialect == "messages"]
    return done.stop_reason == "stop" and bool(hosted)


def _failed(turn: Turn) -> str:
    """Return which results of a turn are said to be failures, which its digest does not tell."""
    return "".join(f"!{n}" for n, part in enumerate(turn.parts) if isinstance(part, ToolResult) and part.is_error)


def _elsewhere(asked: ModelCallRequested) -> str | None:
    """Return the id of the answer that a call went on from, where that is none of this conversation's."""
    named = asked.parameters.get(OTHERS, {}).get(GOES_ON_FROM)
    return named if asked.parent_id is None and isinstance(named, str) else None


def _told(parameters: Mapping[str, Any]) -> str:
    return json.dumps({name: told for name, told in parameters.items() if name not in SENDING}, sort_keys=True)
