"""`gym-bus sql`: any question to the projection."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from gym_bus.cli.lazy import CONTEXT, OK, Command
from gym_bus.cli.setup import data_dir_option, json_option, settings_for


@click.command("sql", cls=Command, context_settings=CONTEXT)
@click.argument("statement", metavar="SELECT…")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--max-rows", type=click.IntRange(1, 1_000_000), default=1000, show_default=True)
@data_dir_option
def command(statement: str, as_json: bool, as_csv: bool, max_rows: int, data_dir: Path | None) -> int:
    """Ask the projection of the log anything, while runs are going on too. It is DuckDB's SQL; nothing can be changed.

    \b
    gym-bus sql "SELECT counted, count(*) FROM rollouts JOIN counted_as USING (state) GROUP BY counted"
    gym-bus sql "SELECT rollout_id, reward, failure_reason FROM rollouts WHERE reward < 1 LIMIT 10"
    gym-bus sql "SELECT view_name FROM duckdb_views() WHERE NOT internal" --csv
    """  # noqa: D301  \b keeps click from wrapping the examples
    if as_json and as_csv:
        msg = "--csv and --json say two things: give one of them"
        raise click.UsageError(msg)
    from gym_bus.cli.questions import ask  # noqa: PLC0415  not needed for --help
    from gym_bus.cli.tables import print_answer  # noqa: PLC0415  the same

    [told] = asyncio.run(ask(settings_for(data_dir), (statement, ()), max_rows=max_rows))
    print_answer(told.answer, as_json=as_json, as_csv=as_csv)
    if told.note:
        print(told.note, file=sys.stderr)
    return OK
