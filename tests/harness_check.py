"""Runs every agent's own program that there is through the usual run, one after the other, and says how each did: `make harness-check`.

The model is scripted: a command that fails, one that makes a file, the end; then, where the program can, the session goes on. What
came of it is written to results/harness-check.json, and, if all were run and did well, into the table of docs/harnesses.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pytest
import structlog

from adapters.harnesses.acp import ACP
from adapters.harnesses.base import Harness
from adapters.harnesses.gaps import KNOWN_GAPS
from adapters.harnesses.joining import replies_of
from adapters.harnesses.table import HARNESSES
from adapters.harnesses.trajectory import ToolAsked
from tests.support.acp_agents import opencode
from tests.support.harness_place import ROOT, HarnessPlace, harness_place, session_of
from tests.support.model_script import SCRIPTS, USUAL, ModelScript, backend_for
from tests.support.page_tables import put_table, table

RESULTS: Final = ROOT / "results" / "harness-check.json"
PAGE: Final = ROOT / "docs" / "harnesses.md"
MADE_BY: Final = "harness-check: made by `make harness-check`"
WITHIN_S: Final = 1500.0
"""For one program, its installation included."""
AGAIN: Final = "Is it there?"
ERROR_MAX: Final = 200
CHECKED: Final = {**HARNESSES, ACP.name: ACP}
"""What is checked; agents that speak the Agent Client Protocol by one that does."""
COLUMNS: Final = ("harness", "version", "dialect", "calls", "turns", "tool_calls", "gaps", "resumes", "wall_s", "ok")


@dataclass
class Row:
    """How one program did. `turns` and `tool_calls` are what it told, `calls` what the model was asked."""

    harness: str
    version: str
    dialect: str
    calls: int = 0
    turns: int = 0
    tool_calls: int = 0
    gaps: list[str] = field(default_factory=list)
    resumes: bool | None = None
    session: str | None = None
    wall_s: float = 0.0
    ok: bool = False
    error: str | None = None


async def check(harness: Harness) -> Row:
    """Return how a program did; whatever goes wrong is in its row."""
    row = Row(harness.name, harness.packages[0].version, harness.dialect)
    agent = opencode() if harness is ACP else None
    model = ModelScript(backend_for(harness.dialect), SCRIPTS.get(harness.name, USUAL))
    with tempfile.TemporaryDirectory(prefix="harness-check-", ignore_cleanup_errors=True) as directory:
        try:
            async with asyncio.timeout(WITHIN_S), harness_place(harness, Path(directory), model, agent) as at:
                with contextlib.redirect_stdout(io.StringIO()):
                    problems = [*await usual_run(at, row), *(await resumed(at, row) if at.harness.resumes else ())]
            row.error = "; ".join(problems)[:ERROR_MAX] or None
        except pytest.skip.Exception as skipped:
            row.error = f"no sandbox: {skipped}"
        except Exception as error:  # noqa: BLE001  its row says so, and the next one is run
            row.error = "; ".join(f"{type(one).__name__}: {one}" for one in leaves(error))[:ERROR_MAX]
    row.ok = row.error is None
    return row


async def usual_run(at: HarnessPlace, row: Row) -> list[str]:
    """Do the usual run; return what is wrong with it."""
    begun = time.monotonic()
    receipt, account = await at.run()
    row.wall_s = round(time.monotonic() - begun, 1)
    row.session = session_of(account) if at.harness.resumes else None
    row.calls = len(at.place.upstream.bodies)
    row.turns = len(replies_of(account.items))
    row.tool_calls = sum(isinstance(item, ToolAsked) for item in account.items)
    row.gaps = sorted(at.joined(account).kinds)
    problems = {
        f"exit code {receipt.exit_code}": receipt.exit_code != 0,
        f"gaps are not those that are known: {', '.join(sorted(KNOWN_GAPS[row.harness]))}": row.gaps
        != sorted(KNOWN_GAPS[row.harness]),
        f"records that nobody knows: {', '.join(account.unknown)}": bool(account.unknown),
        "records that were not understood": any(faults.total for faults in account.faults),
        f"it gave up: {account.failure}": account.failure is not None,
        "the file was not made": await at.said("cat hello.txt") != "hello from here\n",
    }
    return [problem for problem, is_there in problems.items() if is_there]


async def resumed(at: HarnessPlace, row: Row) -> list[str]:
    """Go on with the session; return what is wrong with that."""
    before = len(at.place.upstream.bodies)
    receipt, _ = await at.run(prompt=AGAIN, resume=row.session)
    bodies = [json.dumps(body) for body in at.place.upstream.bodies[before:]]
    row.resumes = receipt.exit_code == 0 and bool(bodies) and AGAIN in bodies[0] and "hello from here" in bodies[0]
    return [] if row.resumes else ["the session did not go on"]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield what a group of errors is made of."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


def table_of(rows: list[Row]) -> str:
    """Return the rows as a table in Markdown."""
    lines = []
    for row in rows:
        resumes = {True: "yes", False: "no", None: "not asked"}[row.resumes]
        cells = (
            f"`{row.harness}`", row.version, row.dialect, row.calls, row.turns, row.tool_calls,
            ", ".join(f"`{gap}`" for gap in row.gaps) or "none", resumes, f"{row.wall_s:.1f}", row.error or "yes",
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return table(COLUMNS, lines)


def main(names: list[str]) -> int:
    """Check those that are named, or all; return 1 if one did not do what it should."""
    if unknown := set(names) - set(CHECKED):
        sys.stderr.write(f"harness-check: no such harness: {', '.join(sorted(unknown))}\n")
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    rows: list[Row] = []
    for name in names or CHECKED:
        rows.append(asyncio.run(check(CHECKED[name])))
        sys.stderr.write(f"{name}: {rows[-1].error or 'ok'}, {rows[-1].wall_s} s\n")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    sys.stdout.write(table_of(rows) + "\n")
    if not names and all(row.ok for row in rows):
        PAGE.write_text(put_table(PAGE.read_text(), MADE_BY, table_of(rows)))
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
