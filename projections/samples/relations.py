"""How the conversations of one attempt hang together, by facts of the log alone: which is the main one, and what the others are.

A *group* (`tree.Tree.groups`) is what goes back to one question that was asked of nothing before it; tries of that question are one
group. Groups are gone through in the order in which their first root was asked. The *setup* of a call is the digest of its system
prompt and that of its tools. For a group with rows that begin at a root:

- `main`: no such group was asked before it. `first_root_without_row` if one before it was answered and yet has no row.
- `sub_agent`: no group before it that was answered has a call of its root's setup; or a group before it was still going on, that is,
  a call of it was answered later than the root was asked, or not at all. `restart_possible` if all groups before it with that setup
  had ended: it may as well be a restart.
- `restart`: else. It `follows`, of the groups before it with that setup, the one that no restart follows yet, in it the chain with the
  last answer. If there is not exactly one, nothing is followed and it says `follows_ambiguous`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from projections.samples.call import Call
from projections.samples.chains import Chain, Chains
from projections.samples.tree import Tree

Relation = Literal["main", "branch", "rewritten", "restart", "sub_agent"]

FIRST_ROOT_WITHOUT_ROW: Final = "first_root_without_row"
RESTART_POSSIBLE: Final = "restart_possible"
FOLLOWS_AMBIGUOUS: Final = "follows_ambiguous"
FOLLOWS_WITHOUT_ROW: Final = "follows_without_row"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a group is to those before it; `during` are chains of the groups that were going on when it was asked for."""

    relation: Relation
    follows: Chain | None = None
    during: tuple[Chain, ...] = ()
    gaps: tuple[str, ...] = ()


@dataclass(slots=True)
class _Group:
    """A group: its first root, when its last answer came (infinity while one is open), its setups, and its chains."""

    root: Call
    last: float = 0
    is_answered: bool = False
    setups: set[tuple[str | None, str | None]] = field(default_factory=set)
    chains: list[Chain] = field(default_factory=list)
    is_rooted: bool = False


def origins_of(tree: Tree, chains: Chains) -> Mapping[str, Origin]:
    """Return the origin of each group that has a row which begins at a root."""
    groups = _groups(tree, chains)
    origins: dict[str, Origin] = {}
    followed: set[str] = set()
    before: list[_Group] = []
    for group in groups:
        if group.is_rooted and not origins:
            gaps = (FIRST_ROOT_WITHOUT_ROW,) if any(other.is_answered for other in before) else ()
            origins[group.root.id] = Origin("main", gaps=gaps)
        elif group.is_rooted:
            origins[group.root.id] = _later(tree, group, before, followed)
        before.append(group)
    return origins


def _groups(tree: Tree, chains: Chains) -> list[_Group]:
    found: dict[str, _Group] = {}
    for call in tree.calls.values():
        group = found.setdefault(tree.groups[call.id], _Group(call))
        group.last = max(group.last, math.inf if call.answered_at is None else call.answered_at)
        group.is_answered |= call.state == "completed"
        group.setups.add(call.setup)
    for chain in chains.chains:
        group = found[tree.groups[chain.head]]
        group.chains.append(chain)
        group.is_rooted |= tree.places[chain.calls[0]].start == "root"
    return list(found.values())


def _later(tree: Tree, group: _Group, before: list[_Group], followed: set[str]) -> Origin:
    """Return what a group is that is not the first."""
    same = [other for other in before if other.is_answered and group.root.setup in other.setups]
    going = [other for other in before if other.last > group.root.asked_at]
    if going or not same:
        is_doubtful = bool(same) and not any(other in going for other in same)
        during = tuple(other.chains[0] for other in going if other.chains)
        return Origin("sub_agent", during=during, gaps=(RESTART_POSSIBLE,) if is_doubtful else ())
    free = [other for other in same if other.root.id not in followed]
    if len(free) != 1:
        return Origin("restart", gaps=(FOLLOWS_AMBIGUOUS,))
    followed.add(free[0].root.id)
    if not free[0].chains:
        return Origin("restart", gaps=(FOLLOWS_WITHOUT_ROW,))
    return Origin("restart", max(free[0].chains, key=lambda chain: tree.calls[chain.calls[-1]].answered_at or 0))
