"""Tables that a program writes into a page of the documentation, between two remarks that say which program."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def _remarks(made_by: str) -> tuple[str, str]:
    return f"<!-- {made_by} -->", f"<!-- /{made_by.partition(':')[0]} -->"


def table(columns: Sequence[str], rows: Iterable[str]) -> str:
    """Return a table in Markdown; the rows are lines already."""
    return "\n".join(("| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns), *rows))


def lines_of(page: str, made_by: str) -> list[str]:
    """Return the rows of the table that stands in a page."""
    begin, end = _remarks(made_by)
    inside = page.partition(begin)[2].partition(end)[0]
    return [line for line in inside.splitlines() if line.startswith("|")][2:]


def put_table(page: str, made_by: str, text: str) -> str:
    """Return the page with the table in the place of the one that stood there."""
    begin, end = _remarks(made_by)
    head, found, rest = page.partition(begin)
    assert found, f"the page has no place for a table: {begin}"
    assert end in rest, f"the page has no end of a table: {end}"
    return f"{head}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
