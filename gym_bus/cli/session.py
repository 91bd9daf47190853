"""`gym-bus session`: a session that waits for inputs from outside."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gym_bus.cli.lazy import CONTEXT, FAILED, OK
from gym_bus.cli.setup import data_dir_option, json_option, settings_for, up_and_connected

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.inputs import Standing
    from gym_bus.settings import Settings


@click.group(context_settings=CONTEXT)
def group() -> None:
    """Give further inputs to sessions that wait for them (tasks with `awaits_input_s`)."""


@group.command()
@click.argument("run_id", metavar="RUN")
@click.argument("rollout_id", metavar="ROLLOUT")
@click.argument("words", metavar="WORDS")
@click.option(
    "--activation",
    type=click.IntRange(2),
    help="The input's number, for which the same words are taken once (default: the next).",
)
@click.option(
    "--timeout", "within_s", type=click.FloatRange(min=0.1), default=1800.0, show_default=True, help="Seconds to wait."
)
@json_option
@data_dir_option
def say(
    run_id: str,
    rollout_id: str,
    words: str,
    activation: int | None,
    within_s: float,
    as_json: bool,
    data_dir: Path | None,
) -> int:
    """Give a session its next input, and print what the agent answers. WORDS are `-` to read them from the input.

    \b
    gym-bus session say RUN 0-0 "And now make bye.txt as well."
    """  # noqa: D301  \b keeps click from wrapping the examples
    said = sys.stdin.read() if words == "-" else words
    if not said.strip():
        raise click.UsageError("there are no words")
    return asyncio.run(_say(settings_for(data_dir), (run_id, rollout_id), said, activation, within_s, as_json=as_json))


@group.command()
@click.argument("run_id", metavar="RUN")
@click.argument("rollout_id", metavar="ROLLOUT")
@data_dir_option
def end(run_id: str, rollout_id: str, data_dir: Path | None) -> int:
    """Say that a session gets no further input: it is closed, and graded with what there is.

    \b
    gym-bus session end RUN 0-0
    """  # noqa: D301  \b keeps click from wrapping the examples
    return asyncio.run(_end(settings_for(data_dir), (run_id, rollout_id)))


@group.command()
@click.argument("run_id", metavar="RUN")
@click.argument("rollout_id", metavar="ROLLOUT")
@json_option
@data_dir_option
def show(run_id: str, rollout_id: str, as_json: bool, data_dir: Path | None) -> int:
    """Show what a session was given, and what came of each.

    \b
    gym-bus session show RUN 0-0
    """  # noqa: D301  \b keeps click from wrapping the examples
    return asyncio.run(_show(settings_for(data_dir), (run_id, rollout_id), as_json=as_json))


async def _say(
    settings: Settings, where: tuple[str, str], words: str, activation: int | None, within_s: float, *, as_json: bool
) -> int:
    from gym_bus import inputs  # noqa: PLC0415  slow to import

    async with up_and_connected(settings) as bus:
        log, standing = await _opened(bus, settings, where)
        number = await inputs.give(log, standing, words, activation=activation, within_s=within_s)
    row = _row(number, standing)
    told = f"activation {number} failed: {row['failure']}" if row["failure"] else row["answer"]
    print(json.dumps(row) if as_json else told)
    return OK if row["state"] == "completed" else FAILED


async def _end(settings: Settings, where: tuple[str, str]) -> int:
    from gym_bus import inputs  # noqa: PLC0415  slow to import

    async with up_and_connected(settings) as bus:
        log, standing = await _opened(bus, settings, where)
        await inputs.end(log, standing)
    print(f"{'/'.join(where)} gets no further input")
    return OK


async def _show(settings: Settings, where: tuple[str, str], *, as_json: bool) -> int:
    from gym_bus.cli.tables import print_table  # noqa: PLC0415  not needed for --help

    async with up_and_connected(settings) as bus:
        _, standing = await _opened(bus, settings, where)
    rows = [_row(number, standing) for number in sorted(standing.fingerprints)]
    state = "waits or works" if standing.end is None else "over"
    if as_json:
        print(json.dumps({"attempt": standing.attempt, "session": state, "activations": rows}))
        return OK
    columns = ("activation", "state", "answer", "failure")
    print_table(columns, [[row[column] for column in columns] for row in rows])
    print(f"\nattempt {standing.attempt}: {state}")
    return OK


async def _opened(bus: Any, settings: Settings, where: tuple[str, str]) -> tuple[EventLog, Standing]:
    from gym_bus import client, inputs  # noqa: PLC0415  slow to import

    log = client.open_log(bus, settings)
    return log, await inputs.standing_of(log, *where)


def _row(number: int, standing: Standing) -> dict[str, Any]:
    from schemas.events import ActivationCompleted, ActivationFailed  # noqa: PLC0415  slow to import

    answer = standing.answers.get(number)
    failure = answer.failure if isinstance(answer, ActivationFailed) else None
    state = "under way" if answer is None else "failed" if failure else "completed"
    return {
        "activation": number,
        "fingerprint": standing.fingerprints[number],
        "state": state,
        "answer": answer.evidence.answer if isinstance(answer, ActivationCompleted) else None,
        "failure": f"{failure.kind}: {failure.message}" if failure else None,
    }
