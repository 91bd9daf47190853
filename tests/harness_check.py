"""Runs every agent's own program that there is on one task, one after the other, and says how each did: `make harness-check`.

Each is a whole run by the command line. The model is scripted: a command that fails, one that makes a file, a call of a tool that the
task offers, the end; then, where the program can, the session goes on. What came of it is written to results/harness-check.json, and if
all were run and did well into the table of docs/harnesses.md.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import structlog

from adapters.harnesses.acp import ACP
from adapters.harnesses.gaps import GAPS_OF_SERVERS, KNOWN_GAPS
from adapters.harnesses.joining import RecordedCall, join, recorded_calls
from adapters.harnesses.prime import PRIME
from adapters.harnesses.table import BROUGHT, HARNESSES, installed_for
from adapters.harnesses.trajectory import Item, ToolDone
from schemas.conversation import DialectName
from schemas.envelope import Envelope
from schemas.events import ActivationStarted, LaunchEnded, LaunchTold
from tests.e2e.test_agent_programs import asked, model_at, rows
from tests.support.acp_agents import opencode
from tests.support.configured_agents import configuration_of, harness_for
from tests.support.harness_place import PROGRAMS, ROOT, installed
from tests.support.heard import heard
from tests.support.noting import NOTED, noting
from tests.support.page_tables import put_table, table
from tests.support.prime_agents import primed
from tests.support.real_run import RealRun

RESULTS: Final = ROOT / "results" / "harness-check.json"
PAGE: Final = ROOT / "docs" / "harnesses.md"
MADE_BY: Final = "harness-check: made by `make harness-check`"
WITHIN_S: Final = 1500.0
"""For one program, its installation included."""
RUN_WITHIN_S: Final = 400.0
AGAIN: Final = "Is it there?"
ERROR_MAX: Final = 400
CHECKED: Final = (*HARNESSES, *BROUGHT)
"""What is checked; of agents whose program its user brings, one of each kind."""
COLUMNS: Final = (
    "harness", "version", "dialect", "calls", "turns", "tool_calls", "task_tool", "gaps", "resumes", "reward", "wall_s", "ok",
)  # fmt: skip


@dataclass
class Row:
    """How one program did in its first activation. `turns` and `tool_calls` are what it told, `calls` what the model was asked.

    `task_tool` is how often the verifier executed the task's tool, `reward` its verdict.
    """

    harness: str
    version: str
    dialect: DialectName
    calls: int = 0
    turns: int = 0
    tool_calls: int = 0
    task_tool: int = 0
    gaps: list[str] = field(default_factory=list)
    resumes: bool | None = None
    reward: float | None = None
    wall_s: float = 0.0
    ok: bool = False
    error: str | None = None


async def check(name: str) -> Row:
    """Return how a program did; whatever goes wrong is in its row."""
    harness = installed_for(name)
    row = Row(name, await version_of(name), harness.dialect)
    with tempfile.TemporaryDirectory(prefix="harness-check-", ignore_cleanup_errors=True) as directory:
        run = RealRun(Path(directory), {"GYM_BUS_PROGRAMS_DIR": str(PROGRAMS)}, run_id=f"check{os.getpid()}")
        try:
            async with asyncio.timeout(WITHIN_S):
                await installed(harness, run.directory, opencode().package if harness is ACP else None)
                row.error = "; ".join(await problems_of(run, row))[:ERROR_MAX] or None
        except Exception as error:  # noqa: BLE001  its row says so, and the next one is run
            row.error = "; ".join(f"{type(one).__name__}: {one}" for one in leaves(error))[:ERROR_MAX]
        finally:
            await asyncio.to_thread(run.stop)
    row.ok = row.error is None
    return row


async def version_of(name: str) -> str:
    """Return which version is run."""
    if name == PRIME.name:
        return (await primed(PROGRAMS)).version
    packages = installed_for(name).packages
    return packages[0].version if packages else "the example"


async def problems_of(run: RealRun, row: Row) -> list[str]:
    """Do the task; fill the row in, and return what is wrong with it."""
    agent = row.harness
    resumes = harness_for(agent).resumes
    task = {
        "id": "make-and-note",
        "question": "Make hello.txt, then write down that it is made.",
        "follow_ups": [AGAIN] if resumes else [],
        **({"tools": ["note"]} if calls_tools(agent) else {}),
        "test_command": "grep -qx 'hello from here' hello.txt",
        "artifacts": ["hello.txt"],
    }
    (run.directory / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    script, more = noting(agent), await configuration_of(agent, run.directory)
    async with model_at(script.dialect, script) as (url, upstream):
        done = await asyncio.to_thread(run.cli, *asked(run, agent, url, *more), timeout_s=RUN_WITHIN_S)
    if done.returncode != 0:
        return [f"the run ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-ERROR_MAX:]}"]
    asked_of_model = [json.dumps(body) for body in upstream.bodies if "input" in body or "messages" in body]
    return await asyncio.to_thread(found, run, row, asked_of_model, resumes=resumes)


def found(run: RealRun, row: Row, asked_of_model: list[str], *, resumes: bool) -> list[str]:
    """Fill the row in out of the log of a run that is over, and return what is wrong with it."""
    launch, *further = rows(run, "select * from launches order by activation")
    notes = rows(run, "select * from task_tool_calls")
    events = run.events()
    told, calls = first_activation(events)
    (ended, *_) = [event.data for event in events if isinstance(event.data, LaunchEnded)]
    (result,) = [json.loads(line) for line in (run.directory / "out" / "rollouts.jsonl").read_text().splitlines()]
    row.turns, row.tool_calls, row.wall_s = launch["replies"], launch["tool_calls"], round(launch["duration_s"], 1)
    row.task_tool = sum(note["state"] == "completed" and json.loads(note["record"]) == NOTED for note in notes)
    row.calls, row.gaps, row.reward = len(calls), sorted(join(told, calls).kinds), result["reward"]
    known = sorted({*KNOWN_GAPS[row.harness], *GAPS_OF_SERVERS.get(row.harness, {})})
    results = [item for item in told if isinstance(item, ToolDone)]
    problems = {
        f"exit code {launch['exit_code']}": launch["exit_code"] != 0,
        "something of it was left": not all(one["is_clean"] for one in (launch, *further)),
        f"the verdict is {row.reward}": row.reward != 1.0,
        f"gaps are not those that are known: {', '.join(known)}": row.gaps != known,
        f"records that nobody knows: {', '.join(ended.unknown)}": bool(ended.unknown),
        "records that were not understood": ended.faults > 0,
        "the log does not hold together": run.cli("doctor").returncode != 0,
    }
    if calls_tools(row.harness):
        problems |= {
            f"the task's tool was called {len(notes)} times": (row.task_tool, len(notes)) != (1, 1),
            "what the tool said was not told": not any("Noted." in item.text for item in results),
            "no command failed": not any(ended_with(item, 1, "No such file or directory") for item in results),
            "no command succeeded": not any(ended_with(item, 0, "hello from here") for item in results),
        }
    if resumes:
        later = asked_of_model[row.calls :]
        row.resumes = bool(later) and AGAIN in later[0] and "hello from here" in later[0]
        problems["the session did not go on"] = not row.resumes
    return [problem for problem, is_there in problems.items() if is_there]


def calls_tools(name: str) -> bool:
    """Say whether a program calls tools at all."""
    return len(harness_for(name).grants) > 1


def ended_with(result: ToolDone, code: int, words: str) -> bool:
    """Say whether a command ended with `code`; of a program that tells no exit codes, whether its output has the words."""
    return words in result.text if result.exit_code is None else result.exit_code == code


def first_activation(events: list[Envelope]) -> tuple[list[Item], list[RecordedCall]]:
    """Return what the program told in its first activation, and what the gateway recorded."""
    ends = next((event.sequence for event in events if isinstance(event.data, ActivationStarted)), None)
    first = [event for event in events if ends is None or event.sequence < ends]
    told = [heard(told) for event in first if isinstance(event.data, LaunchTold) for told in event.data.items]
    return told, recorded_calls(first)


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
            f"`{row.harness}`", row.version, row.dialect, row.calls, row.turns, row.tool_calls, row.task_tool,
            ", ".join(f"`{gap}`" for gap in row.gaps) or "none", resumes, row.reward, f"{row.wall_s:.1f}", row.error or "yes",
        )  # fmt: skip
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return table(COLUMNS, lines)


def main(names: list[str]) -> int:
    """Check those that are named, or all; return 1 if one did not do what it should."""
    if unknown := set(names) - set(CHECKED):
        sys.stderr.write(f"harness-check: no such harness: {', '.join(sorted(unknown))}\n")
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    checked: list[Row] = []
    for name in names or CHECKED:
        checked.append(asyncio.run(check(name)))
        sys.stderr.write(f"{name}: {checked[-1].error or 'ok'}, {checked[-1].wall_s} s\n")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(row) for row in checked], indent=1) + "\n")
    sys.stdout.write(table_of(checked) + "\n")
    if not names and all(row.ok for row in checked):
        PAGE.write_text(put_table(PAGE.read_text(), MADE_BY, table_of(checked)))
    return 0 if all(row.ok for row in checked) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
