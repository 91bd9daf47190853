"""`gym-bus eval status`: what there is, and how sure that is."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from gym_bus.cli import questions, reasons
from gym_bus.cli.attach import shown_problem
from gym_bus.cli.lazy import OK
from gym_bus.cli.plain import plain
from gym_bus.cli.progress import waiting_words
from gym_bus.cli.setup import settings_for
from gym_bus.cli.tables import as_words, print_table
from gym_bus.errors import Permanent
from gym_bus.settings import Settings
from gym_bus.status_file import read_status, supervisor_pid

SILENT_AFTER_S = 10.0
WAITING = "waiting_for_input"
COUNTS = ("planned", "scored", "failed", "masked", "missing", "open")


def processes_of(settings: Settings) -> dict[str, Any]:
    """Return what the supervisor says of processes and store; without one that is said, and not guessed."""
    pid, status = supervisor_pid(settings.data_dir), read_status(settings.data_dir)
    if pid is None or status is None or status.get("pid") != pid:
        return {"supervisor": "not running", "store": {"state": "unknown", "reason": "the supervisor does not run"}}
    said = f"running (pid {pid})"
    if (
        status["age_s"] > SILENT_AFTER_S
    ):  # stopped, or on a machine that has no time for it: what it said may be wrong by now
        said = f"does not answer (pid {pid}): what it says of processes is {status['age_s']:.0f} s old"
    return {"supervisor": said, **{k: status[k] for k in ("bus", "store", "processes", "age_s")}}


def show_status(run_id: str | None, *, as_json: bool, data_dir: Path | None) -> int:
    """Do `gym-bus eval status`."""
    settings = settings_for(data_dir)
    return _one(settings, run_id, as_json=as_json) if run_id else _all(settings, as_json=as_json)


def _all(settings: Settings, *, as_json: bool) -> int:
    [told] = asyncio.run(questions.ask(settings, (questions.RUNS, ())))
    around = processes_of(settings)
    if as_json:
        print(json.dumps({"runs": told.answer.dicts(), "note": told.note, **around}))
        return OK
    if told.answer.rows:
        rows = told.answer.dicts()
        waiting = (WAITING,) if any(row[WAITING] for row in rows) else ()
        columns = ("run_id", "state", *COUNTS, *waiting, "mean_reward", "agent", "model")
        print_table(columns, [[row[c] for c in columns] for row in rows])
    else:
        print("no runs in the log" if told.age_s is None else "no runs in the projection's file")
    for row in told.answer.dicts():
        if reason := row["paused_because"] or (row["state"] == "failed" and row["failure_message"]):
            print(plain(f"{row['run_id']} {row['state']}: {reason}"))
    _print_around(around, told.note)
    return OK


def _one(settings: Settings, run_id: str, *, as_json: bool) -> int:
    wanted = (questions.RUN, questions.STATES, questions.HELD, questions.OPEN_ROLLOUTS, questions.PROBLEMS)
    asked = (*((sql, [run_id]) for sql in wanted), *reasons.wanted(run_id))
    run, states, held, rollouts, problems, *why = asyncio.run(questions.ask(settings, *asked))
    if not run.answer.rows:
        msg = (
            f"there is no run {run_id!r}"
            + (f" ({run.note})" if run.note else "")
            + ": `gym-bus eval status` lists them"
        )
        raise Permanent(msg)
    row, around = run.answer.dicts()[0], processes_of(settings)
    problem = shown_problem(problems.answer.dicts()[0]) if problems.answer.rows else None
    told = reasons.reasons_of([one.answer for one in why])
    is_over = row["finished"] is not None
    if as_json:
        facts = {
            "states": dict(states.answer.rows),
            "held_by": dict(held.answer.rows),
            "running": rollouts.answer.dicts(),
            **told.facts(),
        }
        print(json.dumps({**row, **facts, "problem": problem, "note": run.note, **around}))
        return OK
    print(
        f"run {run_id}: {row['state']}\nagent: {row['agent']}\nmodel: {row['model'] or 'not known yet: the run is being planned'}"
    )
    print(
        f"{row['planned']} planned = {row['scored']} scored + {row['failed']} failed + {row['masked']} masked + "
        f"{row['missing']} missing ({row['open']} of them under way)"
    )
    if row[WAITING]:
        print(f"{waiting_words(row[WAITING])}: gym-bus session say {run_id} ROLLOUT WORDS")
    if row["mean_reward"] is not None:
        print(f"mean reward: {row['mean_reward']:.3f} over {row['scored']} scored")
    for label, value in (
        ("paused because", row["paused_because"]),
        ("failed because", row["failure_message"]),
        ("last problem", None if is_over and told.failures else problem),
    ):
        if value:
            print(plain(f"{label}: {value}"))
    for line in (told if is_over else told.remarks).lines():
        print(plain(line))
    for worker, count in held.answer.rows:
        print(f"held by {worker}: {as_words(count, 'rollout')}")
    if rollouts.answer.rows:
        print()
        print_rollouts(rollouts.answer.dicts())
    print(f"\nresults: {row['output_dir']}")
    _print_around(around, run.note)
    return OK


def print_rollouts(rows: list[dict[str, Any]]) -> None:
    """Print what is under way: what each rollout waits for, by the kind of request, and who has it."""
    columns = ("rollout_id", "stage", "attempt", "failures")
    table = [
        [
            *(row[c] for c in columns),
            ", ".join(kind.partition(".")[0] for kind in row["open_requests"]),
            ", ".join(row["holders"]),
        ]
        for row in rows
    ]
    print_table((*columns, "open_requests", "holders"), table)


def _print_around(around: dict[str, Any], note: str | None) -> None:
    store = around["store"]
    if store["state"] != "ok":
        print(f"store: {store['state']}{': ' + str(store['reason']) if store.get('reason') else ''}")
    if around["supervisor"] == "not running":
        print("nothing runs: `gym-bus eval resume RUN` brings a run's processes up again")
    if note:
        print(note, file=sys.stderr)
