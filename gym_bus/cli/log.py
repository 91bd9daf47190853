"""`gym-bus log`: the events themselves, one line each, or whole."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gym_bus.cli.completion import maybe_run_argument, run_argument
from gym_bus.cli.lazy import CONTEXT, DETACHED, OK, Group
from gym_bus.cli.setup import data_dir_option, json_option, settings_for
from gym_bus.cli.tables import as_words

if TYPE_CHECKING:
    from gym_bus.bus import Stored
    from gym_bus.event_log import EventLog
    from gym_bus.settings import Settings
    from schemas.envelope import Envelope

FACTS: Final = (
    "state", "reward", "planned", "scored", "failed", "masked", "missing", "turn", "tries", "tool", "command",
    "exit_code", "stop_reason", "activation", "reason", "failure_reason", "retry_at", "retry_in_s", "worker",
    "provider", "request_type", "original_sequence", "duration_s",
)  # fmt: skip
FACT_MAX: Final = 60
SHARDS: Final = 1


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """Show the events of a run, or follow them."""


@group.command()
@run_argument
@click.argument("rollout_id", metavar="[ROLLOUT]", required=False)
@click.option("--type", "type_", help="Only events of this type, such as tool_call_requested (a version may follow).")
@click.option("--limit", type=click.IntRange(1), help="Only the first N.")
@json_option
@data_dir_option
def show(
    run_id: str, rollout_id: str | None, type_: str | None, limit: int | None, as_json: bool, data_dir: Path | None
) -> int:
    """Show what is in the log about a run, or one of its rollouts, in order.

    \b
    gym-bus log show quickstart-0801-101500-3f
    gym-bus log show quickstart-0801-101500-3f 0-0
    gym-bus log show quickstart-0801-101500-3f --type model_call_failed --json
    """  # noqa: D301  \b keeps click from wrapping the examples
    return asyncio.run(_show(settings_for(data_dir), run_id, rollout_id, type_, limit, as_json=as_json))


async def _show(
    settings: Settings, run_id: str, rollout_id: str | None, type_: str | None, limit: int | None, *, as_json: bool
) -> int:
    from gym_bus.client import connect_cli, open_log  # noqa: PLC0415  slow to import
    from gym_bus.subjects import token  # noqa: PLC0415  the same

    about = token(rollout_id) if rollout_id else "*"
    count = 0
    if type_:
        _check_type(type_)
    async with connect_cli(settings) as bus:
        log = open_log(bus, settings)
        for shard in range(SHARDS):
            async for stored in bus.read(f"gym.evt.{shard}.{token(run_id)}.{about}.>"):
                event = _readable(log, stored)
                if type_ and type_ not in {event["type"], event["type"].rpartition(".")[0]}:
                    continue
                print(json.dumps(event) if as_json else line_of(event), flush=True)
                count += 1
                if count == limit:
                    return OK
    if count == 0 and not type_:
        raise _nothing_about(run_id, rollout_id)
    return OK


def _nothing_about(run_id: str, rollout_id: str | None = None) -> Exception:
    from gym_bus.errors import Permanent  # noqa: PLC0415  only then

    about = f"run {run_id}{f', rollout {rollout_id}' if rollout_id else ''}"
    return Permanent(f"the log has nothing about {about}: `gym-bus eval status` lists the runs")


@group.command()
@run_argument
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file; one that is there is an error.",
)
@data_dir_option
def export(run_id: str, out: Path, data_dir: Path | None) -> int:
    """Write the events of a run into a file, whole, one a line: a recording for `model.type=replay`.

    \b
    gym-bus log export quickstart-0801-101500-3f --out run.jsonl
    """  # noqa: D301  \b keeps click from wrapping the examples
    if out.exists():
        from gym_bus.errors import BadConfig  # noqa: PLC0415  slow to import

        raise BadConfig(f"--out: {out} is there already: remove it, or name another file")
    asyncio.run(_export(settings_for(data_dir), run_id, out))
    return OK


async def _export(settings: Settings, run_id: str, out: Path) -> None:
    """Write a file beside `out` and give it its name once it is whole."""
    from gym_bus.client import connect_cli, open_log  # noqa: PLC0415  slow to import
    from gym_bus.errors import BadConfig  # noqa: PLC0415  the same
    from gym_bus.subjects import token  # noqa: PLC0415  the same

    count, partial = 0, out.with_name(f".{out.name}.{os.getpid()}")
    try:
        async with connect_cli(settings) as bus:
            log = open_log(bus, settings)
            with partial.open("x", encoding="utf-8") as file:
                for shard in range(SHARDS):
                    async for stored in bus.read(f"gym.evt.{shard}.{token(run_id)}.>"):
                        file.write(json.dumps(_readable(log, stored)) + "\n")
                        count += 1
        if count == 0:
            raise _nothing_about(run_id)
        os.link(partial, out)
    except OSError as error:
        msg = f"--out: {out} cannot be written: {error.strerror or error}"
        raise BadConfig(msg) from error
    finally:
        partial.unlink(missing_ok=True)
    print(f"{as_words(count, 'event')} of {run_id} in {out}")


def _check_type(wanted: str) -> None:
    """Raise `BadConfig` if no version knows events of the type `wanted`, with the names that come close."""
    from difflib import get_close_matches  # noqa: PLC0415  only then

    from gym_bus.errors import BadConfig  # noqa: PLC0415  the same
    from schemas.registry import EVENT_TYPES, UPCASTERS  # noqa: PLC0415  slow to import

    known = {*EVENT_TYPES, *UPCASTERS, "undecodable"}
    names = {name.rpartition(".")[0] or name for name in known}
    if wanted not in known | names:
        close = get_close_matches(wanted, names, 3) or sorted(names)
        msg = f"--type: no event is of type {wanted!r}; there are {', '.join(close)}"
        raise BadConfig(msg)


@group.command()
@maybe_run_argument
@click.option("--from-start", is_flag=True, help="First what is there already (needs RUN).")
@json_option
@data_dir_option
def tail(run_id: str | None, from_start: bool, as_json: bool, data_dir: Path | None) -> int:
    """Follow events as they are stored, until Ctrl-C.

    \b
    gym-bus log tail
    gym-bus log tail quickstart-0801-101500-3f --from-start
    """  # noqa: D301  \b keeps click from wrapping the examples
    if from_start and not run_id:
        msg = "--from-start needs to know which run"
        raise click.UsageError(msg)
    try:
        asyncio.run(_tail(settings_for(data_dir), run_id, from_start=from_start, as_json=as_json))
    except KeyboardInterrupt:
        return DETACHED
    return OK


async def _tail(settings: Settings, run_id: str | None, *, from_start: bool, as_json: bool) -> None:
    """Print what is stored; what arrives while the past is read is kept and printed once. Raises `Permanent` for no such run."""
    from gym_bus.client import connect_cli, open_log  # noqa: PLC0415  slow to import
    from gym_bus.subjects import token  # noqa: PLC0415  the same

    async with connect_cli(settings) as bus:
        log = open_log(bus, settings)
        if run_id and await bus.last(f"gym.evt.0.{token(run_id)}.>") is None:
            raise _nothing_about(run_id)
        arrived: asyncio.Queue[Stored] = asyncio.Queue()
        show: Callable[[Stored], None] = lambda stored: print(  # noqa: E731  one line, used twice
            json.dumps(_readable(log, stored)) if as_json else line_of(_readable(log, stored)), flush=True
        )
        seen = 0
        async with bus.listen(f"gym.live.*.{token(run_id) if run_id else '*'}.>", arrived.put_nowait):
            await bus.client.flush()
            if from_start:
                async for stored in bus.read(f"gym.evt.0.{run_id}.>"):
                    seen = stored.sequence
                    show(stored)
            while True:
                stored = await arrived.get()
                if stored.sequence > seen:
                    show(stored)


def _readable(log: EventLog, stored: Stored) -> dict[str, Any]:
    """Return an event as JSON, also one that this version does not know."""
    from gym_bus.codec import Undecodable  # noqa: PLC0415  slow to import

    try:
        event: Envelope = log.decode(stored)
    except Undecodable as error:
        text = stored.body.decode(errors="replace")
        return {
            "sequence": stored.sequence,
            "type": "undecodable",
            "subject": stored.subject,
            "error": str(error),
            "body": text,
        }
    return event.model_dump(mode="json")


def line_of(event: dict[str, Any]) -> str:
    """Return one event in one line: sequence, time, rollout, writer, type, and what matters of its data."""
    if event["type"] == "undecodable":
        return f"{event['sequence']:>8}  {event['subject']}  undecodable: {event['error']}"
    data = event["data"]
    facts = [f"{name}={_short(data[name])}" for name in FACTS if data.get(name) is not None]
    if failure := data.get("failure"):
        facts.append(f"{failure['kind']}: {_short(failure['message'])}")
    if message := data.get("message"):
        said = message if isinstance(message, str) else message.get("content")
        facts.append(_short(said) if said else "")
    where = event["rollout_id"] + (f"-a{event['attempt'] - 1}" if event["attempt"] > 1 else "")
    head = f"{event['sequence']:>8}  {event['recorded_at'][11:23]}  {where:<8} {event['actor']}.{event['key']}"
    return f"{head:<52} {event['type'].rpartition('.')[0]:<24} {' '.join(f for f in facts if f)}".rstrip()


def _short(value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= FACT_MAX else f"{text[: FACT_MAX - 1]}…"
