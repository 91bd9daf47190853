"""Token ids of a whole conversation, kept as what each call added: a long rollout costs what is stored, not its square."""

from __future__ import annotations

from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Ids:
    """The first `shared` ids of `base`, then `own`."""

    base: Ids | None
    shared: int
    own: array[int]

    @property
    def length(self) -> int:
        """Return how many ids there are."""
        return self.shared + len(self.own)

    def whole(self) -> array[int]:
        """Return all ids, put together anew."""
        return self.first(self.length)

    def first(self, count: int) -> array[int]:
        """Return the first `count` ids, or all if there are fewer; one step for each call that they are from."""
        pieces: list[array[int]] = []
        node, left = self, min(count, self.length)
        while True:
            if left > node.shared:
                pieces.append(node.own[: left - node.shared])
                left = node.shared
            if not left or node.base is None:
                break
            node = node.base
        found = array("q")
        for piece in reversed(pieces):
            found.extend(piece)
        return found

    def begins_with(self, other: Ids, within: int) -> bool:
        """Say whether the first `within` ids begin with all of `other`."""
        if within < other.length:
            return False
        if self.base is other and self.shared == other.length:
            return True
        return self.first(other.length) == other.whole()
