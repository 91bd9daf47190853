"""`gym-bus gateway`: the model gateway of this host."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from gym_bus.cli.lazy import CONTEXT, OK, Group
from gym_bus.cli.setup import data_dir_option, json_option, settings_for


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """Start, stop and look at the gateway by which agents call their model."""


@group.command()
@data_dir_option
def up(data_dir: Path | None) -> int:
    """Ask for a gateway, which the supervisor keeps alive from now on; returns when it listens.

    It is there until `gym-bus gateway down`, or until the supervisor ends because no run has been open for long. Sandboxes on
    other machines reach it where GYM_BUS_DEFAULT_HOST says.

    \b
    gym-bus gateway up
    GYM_BUS_DEFAULT_HOST=10.0.0.5 gym-bus gateway up
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.gateway_up import gateway_up, shown_address  # noqa: PLC0415  not needed for --help

    settings = settings_for(data_dir)
    address = asyncio.run(gateway_up(settings))
    print(shown_address(settings, address))
    return OK


@group.command()
@data_dir_option
def down(data_dir: Path | None) -> int:
    """End the gateway. Calls that are under way get a few seconds; agents that still need it wait for the next one in vain.

    \b
    gym-bus gateway down
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.gateway_up import gateway_down  # noqa: PLC0415  not needed for --help

    was_there = asyncio.run(gateway_down(settings_for(data_dir)))
    print("the gateway is down" if was_there else "no gateway was running")
    return OK


@group.command()
@json_option
@data_dir_option
def status(as_json: bool, data_dir: Path | None) -> int:
    """Show where the gateway listens, its process, and whether it is kept alive; the exit code is 1 if none listens.

    \b
    gym-bus gateway status
    gym-bus gateway status --json
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.gateway_up import show_gateway  # noqa: PLC0415  not needed for --help

    return asyncio.run(show_gateway(settings_for(data_dir), as_json=as_json))
