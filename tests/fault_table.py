"""Makes the table of docs/harnesses.md that says what each agent's program does about each way its model can fail it.

`tests/e2e/test_harness_faults.py` writes what it saw to results/harness-faults/, a file a program; `python -m tests.fault_table` reads
them. Rows of programs that were not run stay as they are.
"""

from __future__ import annotations

import json
from typing import Any, Final

from adapters.harnesses.table import BROUGHT, HARNESSES
from tests.support.harness_place import ROOT
from tests.support.page_tables import lines_of, put_table, table

RESULTS: Final = ROOT / "results" / "harness-faults"
PAGE: Final = ROOT / "docs" / "harnesses.md"
MADE_BY: Final = "harness-faults: made by `python -m tests.fault_table`"
FAULTS: Final = {
    "limited": "provider_rate_limited",
    "broken": "provider_unavailable",
    "garbage": "provider_bad_answer",
    "cut": "transport_unreachable",
    "silent": "agent_timeout",
    "killed": "agent_failed",
    "refused": "provider_auth",
}
"""The class that each has where the program ends by itself."""


def cell(seen: dict[str, Any], usual: str) -> str:
    """Return what came of one fault: how often the model was asked, how long the program ran, and its class if that is another one."""
    other = "" if seen["failure_kind"] == usual else f", `{seen['failure_kind']}`"
    return f"{seen['calls']} calls, {seen['duration_s']:.0f} s{other}"


def row(name: str, faults: dict[str, dict[str, Any]]) -> str:
    """Return a program's row."""
    cells = (f"`{name}`", *(cell(faults[fault], usual) if fault in faults else "" for fault, usual in FAULTS.items()))
    return "| " + " | ".join(cells) + " |"


def with_seen(page: str, seen: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the page with what was seen of each program in its row; rows are in the order of the harnesses."""
    rows = {line.split("`")[1]: line for line in lines_of(page, MADE_BY)}
    rows |= {name: row(name, faults) for name, faults in seen.items()}
    head = ("harness", *(f"{fault}: `{usual}`" for fault, usual in FAULTS.items()))
    return put_table(page, MADE_BY, table(head, [rows[name] for name in (*HARNESSES, *BROUGHT) if name in rows]))


if __name__ == "__main__":
    PAGE.write_text(
        with_seen(PAGE.read_text(), {path.stem: json.loads(path.read_text()) for path in RESULTS.glob("*.json")})
    )
