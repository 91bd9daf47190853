"""The table of what each agent's program does when its model fails it."""

from __future__ import annotations

from typing import Any

from tests.fault_table import FAULTS, MADE_BY, PAGE, with_seen
from tests.support.page_tables import lines_of

EMPTY = f"before\n<!-- {MADE_BY} -->\n<!-- /harness-faults -->\nafter\n"


def seen(**changes: Any) -> dict[str, dict[str, Any]]:
    """Return what a program did that ended at once each time, but for `changes` where it was cut off."""
    usual = {"calls": 2, "duration_s": 3.4}
    return {
        fault: {**usual, "failure_kind": kind, **(changes if fault == "cut" else {})} for fault, kind in FAULTS.items()
    }


def test_what_is_not_usual_is_said() -> None:
    """A class that is not the column's."""
    page = with_seen(EMPTY, {"pi_agent": seen(calls=9, failure_kind="agent_timeout")})
    (line,) = lines_of(page, MADE_BY)
    cells = line.strip("| ").split(" | ")
    assert cells[0] == "`pi_agent`"
    assert cells[1 + list(FAULTS).index("cut")] == "9 calls, 3 s, `agent_timeout`"
    assert cells.count("2 calls, 3 s") == len(FAULTS) - 1
    assert page.startswith("before\n")
    assert page.endswith("after\n")


def test_a_program_that_was_not_run_keeps_its_row() -> None:
    page = with_seen(EMPTY, {"pi_agent": seen()})
    (kept,) = lines_of(page, MADE_BY)
    lines = lines_of(with_seen(page, {"codex_agent": seen()}), MADE_BY)
    assert [line.split("`")[1] for line in lines] == ["codex_agent", "pi_agent"]
    assert lines[1] == kept


def test_the_page_has_its_place() -> None:
    """What stands there now is what it is made of again."""
    page = PAGE.read_text()
    assert with_seen(page, {}) == page
