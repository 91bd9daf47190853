"""`gym-bus dlq`: requests that nobody could finish."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gym_bus.cli.lazy import CONTEXT, OK, Group
from gym_bus.cli.setup import data_dir_option, json_option, settings_for, up_and_connected

if TYPE_CHECKING:
    from gym_bus.settings import Settings


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """List requests that nobody could finish, and try them again."""


@group.command("list")
@json_option
@data_dir_option
def list_(as_json: bool, data_dir: Path | None) -> int:
    """List parked requests, each with its reason.

    \b
    gym-bus dlq list
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.questions import PARKED, ask  # noqa: PLC0415  not needed for --help
    from gym_bus.cli.tables import print_table  # noqa: PLC0415  the same

    [told] = asyncio.run(ask(settings_for(data_dir), (PARKED, ())))
    rows = told.answer.dicts()
    if as_json:
        print(json.dumps({"parked": rows, "note": told.note}))
        return OK
    columns = ("seq", "run_id", "rollout_id", "actor", "request_type", "at", "redriven", "failure_message")
    if rows:
        print_table(columns, [[row[c] for c in columns] for row in rows])
        print("\ntry one again: gym-bus dlq redrive SEQ")
    else:
        print("nothing is parked")
    if told.note:
        print(told.note, file=sys.stderr)
    return OK


@group.command()
@click.argument("sequences", metavar="SEQ...", nargs=-1, required=True, type=int)
@data_dir_option
def redrive(sequences: tuple[int, ...], data_dir: Path | None) -> int:
    """Try parked requests again. SEQ is the number that `dlq list` shows.

    \b
    gym-bus dlq redrive 1042
    """  # noqa: D301  \b keeps click from wrapping the examples
    return asyncio.run(_redrive(settings_for(data_dir), sequences))


async def _redrive(settings: Settings, sequences: tuple[int, ...]) -> int:
    from gym_bus import client  # noqa: PLC0415  slow to import
    from gym_bus.cli.questions import PARKED  # noqa: PLC0415  not needed for --help
    from gym_bus.errors import Permanent  # noqa: PLC0415  the same

    async with up_and_connected(settings) as bus:
        log = client.open_log(bus, settings)
        parked = {row["seq"]: row for row in (await client.query(bus, PARKED)).dicts()}
        for sequence in sequences:
            if sequence not in parked:
                msg = f"nothing is parked at {sequence}: `gym-bus dlq list` shows what is"
                raise Permanent(msg)
            original, subject = await _original(log, parked[sequence])
            await client.redrive(log, original, subject)
            print(f"{original.type} of {original.run_id}/{original.rollout_id} is tried again")
    return OK


async def _original(log: Any, parked: dict[str, Any]) -> tuple[Any, str]:
    """Return the request that was parked and its subject; raises `Permanent` if it is not to be found."""
    from gym_bus.codec import Undecodable  # noqa: PLC0415  slow to import
    from gym_bus.errors import Permanent  # noqa: PLC0415  the same

    pattern = f"gym.evt.{parked['shard']}.{parked['run_id']}.{parked['rollout_id']}.*.*.cmd.>"
    async for stored in log.bus.read(pattern):
        try:
            event = log.decode(stored)
        except Undecodable:
            continue
        if event.event_id == parked["request_id"]:
            return event, stored.subject
    msg = f"the request {parked['request_id']} is not readable by this version of gym-bus, so it cannot be tried again"
    raise Permanent(msg)
