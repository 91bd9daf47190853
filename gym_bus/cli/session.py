"""`gym-bus session`: a session that waits for inputs from outside."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gym_bus.cli.completion import rollout_argument, run_argument
from gym_bus.cli.lazy import CONTEXT, FAILED, OK, Group
from gym_bus.cli.setup import data_dir_option, json_option, settings_for, up_and_connected

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.inputs import Standing
    from gym_bus.settings import Settings


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """Give further inputs to sessions that wait for them (tasks with `awaits_input_s`)."""


@group.command()
@run_argument
@rollout_argument
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
    """Give a session its next input, and print what the agent answers.

    WORDS are `-` to read them from standard input, of which one line end at the very end is left out.

    \b
    gym-bus session say RUN 0-0 "And now make bye.txt as well."
    """  # noqa: D301  \b keeps click from wrapping the examples
    said = sys.stdin.read().removesuffix("\n") if words == "-" else words
    if not said.strip():
        raise click.UsageError("there are no words")
    if not said.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in said):
        raise click.UsageError("the words are no UTF-8")
    return asyncio.run(_say(_settings(data_dir), (run_id, rollout_id), said, activation, within_s, as_json=as_json))


@group.command()
@run_argument
@rollout_argument
@json_option
@data_dir_option
def end(run_id: str, rollout_id: str, as_json: bool, data_dir: Path | None) -> int:
    """Say that a session gets no further input: it is closed, and graded with what there is.

    \b
    gym-bus session end RUN 0-0
    """  # noqa: D301  \b keeps click from wrapping the examples
    return asyncio.run(_end(_settings(data_dir), (run_id, rollout_id), as_json=as_json))


@group.command()
@run_argument
@rollout_argument
@json_option
@data_dir_option
def show(run_id: str, rollout_id: str, as_json: bool, data_dir: Path | None) -> int:
    """Show what a session was given, and what came of each.

    \b
    gym-bus session show RUN 0-0
    """  # noqa: D301  \b keeps click from wrapping the examples
    return asyncio.run(_show(_settings(data_dir), (run_id, rollout_id), as_json=as_json))


def _settings(data_dir: Path | None) -> Settings:
    """Return the settings; raises `Permanent` where there is no log, before anything is started."""
    from gym_bus.errors import Permanent  # noqa: PLC0415  not needed for --help

    settings = settings_for(data_dir)
    if not settings.bus_url and not (settings.data_dir / "bus").is_dir():
        msg = f"there is no log under {settings.data_dir}: `gym-bus eval run` makes one (GYM_BUS_DATA_DIR, --data-dir)"
        raise Permanent(msg)
    return settings


async def _say(
    settings: Settings, where: tuple[str, str], words: str, activation: int | None, within_s: float, *, as_json: bool
) -> int:
    from gym_bus import inputs  # noqa: PLC0415  slow to import

    async with up_and_connected(settings) as bus:
        log, standing = await _opened(bus, settings, where)
        number = await inputs.give(log, standing, words, activation=activation, within_s=within_s)
    row = _row(number, standing)
    if row["failure"] and not as_json:
        again = "if another attempt follows, it begins anew, with the task's first input"
        print(f"error: activation {number} failed: {row['failure']}; {again}", file=sys.stderr)
    else:
        print(json.dumps(row) if as_json else row["answer"])
    return OK if row["state"] == "completed" else FAILED


async def _end(settings: Settings, where: tuple[str, str], *, as_json: bool) -> int:
    from gym_bus import inputs  # noqa: PLC0415  slow to import

    async with up_and_connected(settings) as bus:
        log, standing = await _opened(bus, settings, where)
        await inputs.end(log, standing)
    if as_json:
        print(
            json.dumps(
                {"run_id": where[0], "rollout_id": where[1], "attempt": standing.attempt, "activation": standing.newest}
            )
        )
    else:
        print(f"{'/'.join(where)} gets no further input")
    return OK


async def _show(settings: Settings, where: tuple[str, str], *, as_json: bool) -> int:
    from gym_bus.cli.tables import print_table  # noqa: PLC0415  not needed for --help

    async with up_and_connected(settings) as bus:
        _, standing = await _opened(bus, settings, where)
    rows = [_row(number, standing) for number in sorted(standing.fingerprints)]
    if as_json:
        print(json.dumps({"attempt": standing.attempt, "session": standing.stands, "activations": rows}))
        return OK
    columns = ("activation", "input", "state", "answer", "failure")
    print_table(columns, [[row[column] for column in columns] for row in rows])
    print(f"\nattempt {standing.attempt}: {standing.stands}")
    return OK


async def _opened(bus: Any, settings: Settings, where: tuple[str, str]) -> tuple[EventLog, Standing]:
    from gym_bus import client, inputs  # noqa: PLC0415  slow to import
    from gym_bus.cli.eval_runs import request_of  # noqa: PLC0415  the same

    log = client.open_log(bus, settings)
    await request_of(log, where[0])
    return log, await inputs.standing_of(log, *where)


def _row(number: int, standing: Standing) -> dict[str, Any]:
    from schemas.events import ActivationCompleted, ActivationFailed  # noqa: PLC0415  slow to import

    answer = standing.answers.get(number)
    failure = answer.failure if isinstance(answer, ActivationFailed) else None
    state = "under way" if answer is None else "failed" if failure else "completed"
    return {
        "attempt": standing.attempt,
        "activation": number,
        "input": standing.inputs[number],
        "fingerprint": standing.fingerprints[number],
        "state": state,
        "answer": answer.evidence.answer if isinstance(answer, ActivationCompleted) else None,
        "failure": f"{failure.kind}: {failure.message}" if failure else None,
    }
