"""From the tree to chains: one from each start to each last call that can be trained, and which chain owns which call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from projections.samples.call import Call
from projections.samples.tree import Tree


@dataclass(frozen=True, slots=True)
class Chain:
    """Calls of which each continues the one before. The chain owns those from `head` on; the ones before are another chain's."""

    calls: tuple[str, ...]
    head: str

    @property
    def own(self) -> tuple[str, ...]:
        """Return the calls that the chain owns."""
        return self.calls[self.calls.index(self.head) :]


@dataclass(frozen=True, slots=True)
class Chains:
    """The chains in the order in which they own calls, the main one first; `cut` are the ends of the tree that no chain holds."""

    chains: tuple[Chain, ...]
    owner: Mapping[str, Chain]
    cut: tuple[tuple[str, ...], ...]


def chains_of(tree: Tree, untrainable: frozenset[str]) -> Chains:
    """Return the chains of `tree`.

    A call that cannot be trained is in a chain only if a later one that can be continues it. The main chain owns all its calls;
    each other call is owned by the chain that goes on with the child that was asked first.
    """
    kept = _kept(tree, untrainable)
    leaves = _leaves(tree, kept)
    if leaf := _main_leaf(tree, leaves):
        leaves.remove(leaf)
        leaves.insert(0, leaf)
    owner: dict[str, Chain] = {}
    chains: list[Chain] = []
    for leaf in leaves:
        calls = tree.path(leaf)
        chain = Chain(tuple(calls), next(call for call in calls if call not in owner))
        chains.append(chain)
        owner.update({call: chain for call in calls if call not in owner})
    return Chains(tuple(chains), owner, _cut(tree, kept))


def _kept(tree: Tree, untrainable: frozenset[str]) -> frozenset[str]:
    """Return the calls that can be trained, and those that they continue."""
    kept: set[str] = set()
    for call_id in tree.places:
        node: str | None = None if call_id in untrainable else call_id
        while node is not None and node not in kept:
            kept.add(node)
            node = tree.places[node].parent_id
    return frozenset(kept)


def _leaves(tree: Tree, kept: frozenset[str]) -> list[str]:
    """Return the kept calls that no kept one continues: groups, starts and children in the order in which they were asked."""
    children = tree.children(kept)
    first = {group: n for n, group in enumerate(dict.fromkeys(tree.groups.values()))}
    starts = sorted(children.get(None, ()), key=lambda start: first[tree.groups[start]])
    leaves: list[str] = []
    todo = starts[::-1]
    while todo:
        node = todo.pop()
        below = children.get(node, [])
        todo.extend(below[::-1])
        if not below:
            leaves.append(node)
    return leaves


def _main_leaf(tree: Tree, leaves: list[str]) -> str | None:
    """Return where the main chain ends: it holds the last answered call under the roots of the first group that has any."""
    rooted = [leaf for leaf in leaves if tree.places[tree.path(leaf)[0]].start == "root"]
    if not rooted:
        return None
    group = tree.groups[rooted[0]]
    mine = [leaf for leaf in rooted if tree.groups[leaf] == group]
    return max(mine, key=lambda leaf: _answered(tree.calls[leaf]))


def _answered(call: Call) -> int:
    return call.answered_at or 0


def _cut(tree: Tree, kept: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """Return for each last call that is in no chain the calls that lead to it from where the chains leave off."""
    continued = {place.parent_id for place in tree.places.values()}
    ends = [call_id for call_id in tree.places if call_id not in kept and call_id not in continued]
    return tuple(tuple(call for call in tree.path(end) if call not in kept) for end in ends)
