"""`gym-bus bus`: the bus and the processes around it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import click

from gym_bus.cli.lazy import CONTEXT, OK, Group
from gym_bus.cli.setup import await_projector, await_up, data_dir_option, json_option, settings_for, start_supervisor

PROJECTOR_PATIENCE_S: Final = 30.0


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """Start, stop and look at the bus and its processes."""


@group.command()
@click.option(
    "--rebuild-queues",
    is_flag=True,
    help="Make missing queues again: every request of the log is handed out once more.",
)
@data_dir_option
def up(rebuild_queues: bool, data_dir: Path | None) -> int:
    """Start the supervisor, which keeps the bus, the actor hosts and the projector alive.

    Returns when the projector answers, too, or after half a minute. The supervisor ends by itself when no run has been open
    for GYM_BUS_IDLE_EXIT_S seconds (1800).

    \b
    gym-bus bus up
    GYM_BUS_HOSTS=4 gym-bus bus up
    """  # noqa: D301  \b keeps click from wrapping the examples
    settings = settings_for(data_dir)
    if rebuild_queues:
        from gym_bus.kept_bus import provision_embedded  # noqa: PLC0415  only then
        from gym_bus.server import EmbeddedServer  # noqa: PLC0415  the same

        address = EmbeddedServer(settings.data_dir / "bus").ensure(settings.store_max_bytes)
        asyncio.run(provision_embedded(address, settings, rebuild_queues=True))
    start_supervisor(settings)
    status = asyncio.run(await_up(settings))
    print(f"the bus is up at {status['bus']['url']}, supervisor pid {status['pid']}", flush=True)
    if not asyncio.run(await_projector(settings, PROJECTOR_PATIENCE_S)):
        print(f"the projector does not answer yet, after {PROJECTOR_PATIENCE_S:.0f} s: see `gym-bus bus status`")
    return OK


@group.command()
@data_dir_option
def down(data_dir: Path | None) -> int:
    """Stop hosts, projector and bus in order. Runs that are open go on after `gym-bus eval resume RUN`.

    \b
    gym-bus bus down
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.bus_down import stop_everything  # noqa: PLC0415  not needed for --help

    stopped = asyncio.run(stop_everything(settings_for(data_dir)))
    print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
    return OK


@group.command()
@json_option
@data_dir_option
def status(as_json: bool, data_dir: Path | None) -> int:
    """Show the server, its streams and queues, the processes, and how far the projector is.

    \b
    gym-bus bus status
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.bus_status import show_bus  # noqa: PLC0415  not needed for --help

    return asyncio.run(show_bus(settings_for(data_dir), as_json=as_json))
