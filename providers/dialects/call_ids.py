"""The ids of an answer's calls: no two calls have one, or nobody could say which of them a result belongs to."""

from __future__ import annotations

from collections.abc import Iterable

from providers.dialects.base import Malformed
from schemas.conversation import Part, ToolUse


class CallIds:
    """Takes the parts of one answer, each perhaps more than once, by their indexes."""

    def __init__(self) -> None:
        """Begin with none."""
        self._index_of: dict[str, int] = {}

    def note(self, index: int, part: Part) -> None:
        """Take in a part; raises `Malformed` for a call that has the id of another one."""
        if isinstance(part, ToolUse) and self._index_of.setdefault(part.id, index) != index:
            raise Malformed(f"two calls of one answer have the id {part.id!r}")


def check_call_ids(parts: Iterable[Part]) -> None:
    """Raise `Malformed` if two calls of an answer have one id."""
    ids = CallIds()
    for index, part in enumerate(parts):
        ids.note(index, part)
