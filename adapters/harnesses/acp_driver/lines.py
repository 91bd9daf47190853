"""Lines of a file as an agent counts them."""

from __future__ import annotations


def part_of(text: str, line: int | None, limit: int | None) -> str:
    """Return `limit` lines of a text, or all, from the `line`-th on (from 1): a line ends with a line feed, and with nothing else."""
    *whole, rest = text.split("\n")
    first = max((line or 1) - 1, 0)
    lines = [*(f"{one}\n" for one in whole), rest]
    return "".join(lines[first : None if limit is None else first + max(limit, 0)])
