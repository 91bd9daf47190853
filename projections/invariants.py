"""The invariants of the log (`sql/invariants`), each a query whose rows are what violates it."""

from __future__ import annotations

from typing import Any

from projections import queries
from projections.store import Connection

Violations = dict[str, list[tuple[Any, ...]]]


def statements() -> dict[str, str]:
    """Return the queries by name, in the order of the names."""
    return {name: queries.text(f"invariants/{name}") for name in queries.names("invariants")}


def violations(connection: Connection, *, most: int = 100) -> Violations:
    """Return for every invariant that does not hold the first `most` rows that violate it; empty when all hold."""
    found = {name: connection.execute(statement).fetchmany(most) for name, statement in statements().items()}
    return {name: rows for name, rows in found.items() if rows}
