"""Which call continues which, by their token ids, and which calls begin anew.

A call *continues* another if its whole prompt begins with all of that one's prompt and answer. Asked about are, in this order, the
call whose ids the log shares with it, and the call that it continued by what was said; a parent without ids is passed over for
its own parent (`parent_without_ids`); ids that cannot be believed count as none (`Call.ids`). A call that continues none *starts*
a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from projections.samples.call import Call
from projections.samples.reading import PARENT_UNKNOWN

PARENT_WITHOUT_IDS: Final = "parent_without_ids"
BEGINNING_WITHOUT_IDS: Final = "beginning_without_ids"
PARENTS_DIFFER: Final = "parents_differ"
"""By its tokens a call continues another call than by what was said."""

Kind = Literal["root", "rewritten"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call stands: the call `parent_id` that it continues, or None and what kind of start it is.

    `root`: nothing with ids comes before it. `rewritten`: its parent is known and its prompt does not begin with the parent's ids.
    """

    parent_id: str | None
    start: Kind | None
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """The calls of one attempt by id, in the order in which they were asked.

    `places` holds those with ids. `groups` names for every call the first root of its group: a group is what goes back, by tokens
    or else by what was said, to the same question asked of nothing before it.
    """

    calls: Mapping[str, Call]
    places: Mapping[str, Place]
    groups: Mapping[str, str]

    def path(self, call_id: str) -> list[str]:
        """Return the calls of the chain that ends with `call_id`, its start first."""
        found: list[str] = []
        node: str | None = call_id
        while node is not None:
            found.append(node)
            node = self.places[node].parent_id
        return found[::-1]

    def children(self, kept: frozenset[str]) -> dict[str | None, list[str]]:
        """Return for each call those of `kept` that continue it, in the order in which they were asked; the starts under None."""
        found: dict[str | None, list[str]] = {}
        for call_id, place in self.places.items():
            if call_id in kept:
                found.setdefault(place.parent_id, []).append(call_id)
        return found


def tree_of(calls: Mapping[str, Call]) -> Tree:
    """Return the tree of `calls`, which are in the order in which they were asked."""
    places = {call.id: _place(call, calls) for call in calls.values() if call.ids is not None}
    groups: dict[str, str] = {}
    roots: dict[tuple[str, str, str | None], str] = {}
    for call in calls.values():
        parent_id = (places[call.id].parent_id if call.id in places else None) or call.parent_id
        if parent_id in groups:
            groups[call.id] = groups[parent_id]
        else:
            question = (call.conversation, call.context_digest, call.tools_digest)
            groups[call.id] = roots.setdefault(question, call.id)
    return Tree(calls, places, groups)


def _place(call: Call, calls: Mapping[str, Call]) -> Place:
    passed = False
    nearest: Call | None = None
    for ancestor in _ancestors(call, calls):
        if ancestor.ids is not None:
            nearest = ancestor
            break
        passed = True
    gaps = (PARENT_WITHOUT_IDS,) if passed and nearest else ()
    shared = calls.get(call.tokens.parent_id or "") if call.tokens else None
    if shared is not None and _continues(call, shared):
        if nearest is not None and shared.id != nearest.id:
            gaps = (*gaps, PARENTS_DIFFER)
        return Place(shared.id, None, gaps)
    if nearest is not None:
        return Place(nearest.id, None, gaps) if _continues(call, nearest) else Place(None, "rewritten", gaps)
    if PARENT_UNKNOWN in call.gaps:
        return Place(None, "rewritten")
    return Place(None, "root", (BEGINNING_WITHOUT_IDS,) if passed else ())


def _ancestors(call: Call, calls: Mapping[str, Call]) -> Iterator[Call]:
    """Yield the calls before `call` by what was said, nearest first; each was asked before the one after it."""
    node = call
    while node.parent_id is not None:
        parent = calls.get(node.parent_id)
        if parent is None or parent.asked_at >= node.asked_at:
            return
        yield parent
        node = parent


def _continues(call: Call, other: Call) -> bool:
    """Say whether `call`, asked after `other` was answered, has a prompt that begins with all ids of `other`."""
    if call.tokens is None or call.ids is None or other.ids is None:
        return False
    is_after = other.answered_at is not None and other.answered_at < call.asked_at
    return is_after and call.ids.begins_with(other.ids, call.tokens.prompt_length)
