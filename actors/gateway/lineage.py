"""Which call continued which: found by what was said, turn by turn, in a form that no client's habits change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from providers.dialects.digests import ROOT, chained, links_of, turn_digest
from schemas.conversation import Part, Turn

AMBIGUOUS: Final = "parent_ambiguous"
ELSEWHERE: Final = "parent_elsewhere"
"""The call goes on from an answer that its provider keeps, and that is none of this conversation's."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands among the conversation's calls.

    `parent_id` is the call whose whole conversation, answer included, it continues; `known_turns` of its turns are that
    conversation. `digest` is over all of its turns; `turn` numbers what was asked, from 1, and `tries` how often, this time included.
    """

    parent_id: str | None
    known_turns: int
    digest: str
    turn: int
    tries: int
    gaps: tuple[str, ...] = ()


@dataclass
class Lineage:
    """The calls of one conversation so far, by what was said up to the end of each."""

    _answered: dict[str, list[str]] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)
    _turns: dict[str, int] = field(default_factory=dict)
    _links: dict[str, str] = field(default_factory=dict)
    _invocations: dict[str, str | None] = field(default_factory=dict)
    _replies: dict[str, tuple[str, str]] = field(default_factory=dict)

    def place(self, turns: Sequence[Turn], invocation: str | None = None, after: str | None = None) -> Place:
        """Return where a call with these `turns` stands.

        Of several parents that said the same, the ones of the same `invocation` count; what still fits two says so: nothing is guessed.
        A call that names the answer that it goes on from, `after`, says only what is new; its parent is the call that had that answer.
        """
        parent, begin = self._replies.get(after, (None, after)) if after else (None, ROOT)
        links = links_of(turns, begin)
        digest = links[-1] if links else begin
        turn, tries = self._turns.get(digest, len(self._turns) + 1), self._asked.get(digest, 0) + 1
        if after:
            return Place(parent, 0, digest, turn, tries, () if parent else (ELSEWHERE,))
        for known in range(len(links), 0, -1):
            if parents := self._answered.get(links[known - 1]):
                parents = [p for p in parents if invocation and self._invocations[p] == invocation] or parents
                gaps = (AMBIGUOUS,) if len(parents) > 1 else ()
                return Place(parents[-1], known, digest, turn, tries, gaps)
        return Place(None, 0, digest, turn, tries)

    def ask(self, call_id: str, digest: str, invocation: str | None = None) -> None:
        """Note a call that is being made, with the digest of all its turns."""
        self._invocations[call_id] = invocation
        self._turns.setdefault(digest, len(self._turns) + 1)
        self._asked[digest] = self._asked.get(digest, 0) + 1
        self._links[call_id] = digest

    def answer(self, call_id: str, parts: Sequence[Part], reply_id: str | None = None) -> None:
        """Note a call's answer: whoever repeats it, or goes on after the reply of this id, continues the call."""
        link = chained([turn_digest("assistant", parts)], self._links[call_id])[0]
        self._answered.setdefault(link, []).append(call_id)
        if reply_id:
            self._replies[reply_id] = (call_id, link)
