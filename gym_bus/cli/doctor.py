"""`gym-bus doctor`: is all there that a run needs, and does the log hold what it promises?"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gym_bus.cli.lazy import CONTEXT, FAILED, OK, Command
from gym_bus.cli.setup import data_dir_option, json_option, settings_for
from gym_bus.status_file import supervisor_pid

if TYPE_CHECKING:
    from gym_bus.settings import Settings

Check = dict[str, Any]


@click.command("doctor", cls=Command, context_settings=CONTEXT)
@json_option
@data_dir_option
def command(as_json: bool, data_dir: Path | None) -> int:
    """Check what a run needs (server, sandbox, room), the processes, and the invariants of the log.

    Exit code 1 if anything is wrong.

    \b
    gym-bus doctor
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.entry import check_folders  # noqa: PLC0415  not needed for --help

    settings = settings_for(data_dir)
    check_folders()
    checks = [*_machine(settings), *_processes(settings), *asyncio.run(_invariants(settings))]
    for check in checks:
        if as_json:
            print(json.dumps(check))
        else:
            print(f"{'ok  ' if check['ok'] else 'BAD '} {check['name']}: {check['said']}")
    return OK if all(check["ok"] for check in checks) else FAILED


def _machine(settings: Settings) -> list[Check]:
    from gym_bus.errors import Permanent  # noqa: PLC0415  not needed for --help
    from gym_bus.server import find_binary  # noqa: PLC0415  the same

    checks: list[Check] = [{"name": "python", "ok": True, "said": sys.version.split()[0]}]
    try:
        checks.append({"name": "nats-server", "ok": True, "said": find_binary()})
    except Permanent as error:
        checks.append({"name": "nats-server", "ok": bool(settings.bus_url), "said": str(error)})
    bwrap = shutil.which("bwrap")
    checks.append(
        {
            "name": "bubblewrap",
            "ok": bwrap is not None,
            "said": bwrap or "no `bwrap` on PATH: tools cannot run in sandboxes",
        }
    )
    place = next(p for p in (settings.data_dir, *settings.data_dir.parents) if p.exists())
    free = shutil.disk_usage(place).free
    checks.append(
        {"name": "room", "ok": free >= settings.store_min_free_bytes, "said": f"{free:,} bytes are free at {place}"}
    )
    return checks


def _processes(settings: Settings) -> list[Check]:
    """Nothing running is no fault; something that keeps ending is."""
    from gym_bus.cli.eval_status import processes_of  # noqa: PLC0415  not needed for --help

    around = processes_of(settings)
    is_silent = around["supervisor"].startswith("does not answer")
    checks: list[Check] = [{"name": "supervisor", "ok": not is_silent, "said": around["supervisor"]}]
    if around["supervisor"] == "not running":
        return checks
    bus, store = around["bus"], around["store"]
    checks.append(
        {"name": "bus", "ok": bus["state"] == "running", "said": bus["problem"] or f"{bus['state']} at {bus['url']}"}
    )
    checks.append(
        {
            "name": "store",
            "ok": store["state"] != "full",
            "said": f"{store['state']} {store.get('reason') or ''}".strip(),
        }
    )
    for name, process in around["processes"].items():
        said = f"{process['state']}, pid {process['pid']}, started again {process['restarts']} times"
        checks.append({"name": f"process {name}", "ok": process["pid"] is not None, "said": said})
    return checks


def _without_projection(settings: Settings) -> Check:
    """Tell a log that is not projected yet from none at all."""
    store = settings.data_dir / "bus" / "store"
    if supervisor_pid(settings.data_dir) is not None:
        said = "not checked: the projector is not ready; ask again in a moment, `gym-bus bus status` says how it is"
        return {"name": "log", "ok": False, "said": said}
    if store.is_dir() and any(store.iterdir()):
        return {
            "name": "log",
            "ok": False,
            "said": "not checked: nothing runs that reads it; `gym-bus bus up` starts it",
        }
    return {"name": "log", "ok": True, "said": f"there is none under {settings.data_dir} yet"}


async def _invariants(settings: Settings) -> list[Check]:
    from gym_bus.cli.questions import ask  # noqa: PLC0415  not needed for --help
    from gym_bus.errors import GymBusError  # noqa: PLC0415  the same
    from projections.invariants import statements  # noqa: PLC0415  the same

    if not (settings.data_dir / "projections.duckdb").exists():
        return [_without_projection(settings)]
    checks: list[Check] = []
    for name, statement in statements().items():
        try:
            [told] = await ask(settings, (statement, ()), max_rows=5)
        except GymBusError as error:
            checks.append({"name": f"invariant {name}", "ok": False, "said": f"could not be checked: {error}"})
            continue
        rows = told.answer.dicts()
        said = f"violated: {json.dumps(rows[:5])}" if rows else "holds" + (f" ({told.note})" if told.note else "")
        checks.append({"name": f"invariant {name}", "ok": not rows, "said": said})
    return checks
