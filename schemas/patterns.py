"""What can be said of a regular expression before it is used."""

from __future__ import annotations

from re import _parser  # type: ignore[attr-defined]
from typing import Any, Final

__all__ = ["repeats_a_repeat"]

_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT"})
_ONCE: Final = 1


def repeats_a_repeat(pattern: str) -> bool:
    """Return whether a repeat holds another one, both of which can give back what they took: searching may take exponential time."""
    return _repeats(_parser.parse(pattern), is_inside=False)


def _repeats(part: Any, *, is_inside: bool) -> bool:
    """Go through what the parser returns: sequences of pairs of an operator and its arguments, in one another."""
    if isinstance(part, tuple) and len(part) == 2 and str(part[0]) in _REPEATS:  # noqa: PLR2004  an operator and its arguments
        _, most, inner = part[1]
        is_repeat = int(most) > _ONCE
        return (is_repeat and is_inside) or _repeats(inner, is_inside=is_inside or is_repeat)
    if isinstance(part, (list, tuple, _parser.SubPattern)):
        return any(_repeats(one, is_inside=is_inside) for one in part)
    return False
