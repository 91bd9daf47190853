"""`gym-bus programs`: what is installed on this host for agents that are programs of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gym_bus.cli.completion import agents as agent_names
from gym_bus.cli.lazy import CONTEXT, FAILED, OK, Group
from gym_bus.cli.setup import data_dir_option, json_option, settings_for

if TYPE_CHECKING:
    from adapters.harnesses.base import Harness
    from adapters.harnesses.installing.kept import Kept
    from gym_bus.settings import Settings

MIB = 1024 * 1024


@click.group(cls=Group, context_settings=CONTEXT)
def group() -> None:
    """List, install and remove the programs of agents. A run installs by itself what it lacks."""


@group.command("list")
@json_option
@data_dir_option
def list_(as_json: bool, data_dir: Path | None) -> int:
    """List what is installed: how large it is, and whether a run would take it today or a sandbox is shown it.

    \b
    gym-bus programs list
    """  # noqa: D301  \b keeps click from wrapping the examples
    from gym_bus.cli.tables import print_table  # noqa: PLC0415  not needed for --help

    found = _kept(settings_for(data_dir))
    if as_json:
        rows = [
            {
                "name": one.place.name,
                "bytes": one.size,
                "wanted": one.is_wanted,
                "shown": one.is_shown,
                "path": str(one.place),
            }
            for one in found
        ]
        print(json.dumps({"programs": rows}))
    elif found:
        print_table(
            ("name", "MiB", "state"), [[one.place.name, f"{one.size / MIB:,.0f}", _state(one)] for one in found]
        )
        print(f"\n{sum(one.size for one in found) / MIB:,.0f} MiB in {found[0].place.parent}")
    else:
        print("nothing is installed")
    return OK


@group.command()
@click.argument("agents", nargs=-1, required=True, metavar="AGENT...", shell_complete=agent_names)
@data_dir_option
def install(agents: tuple[str, ...], data_dir: Path | None) -> int:
    """Install the programs of agents, by their types with or without `_agent`, before a run needs them. What is there is left as it is.

    \b
    gym-bus programs install codex pi
    """  # noqa: D301  \b keeps click from wrapping the examples
    from adapters.harnesses.installing import InstallFailed, installs_of, shared_with  # noqa: PLC0415  not needed for --help

    settings = settings_for(data_dir)
    failed = 0
    for harness in [_harness(name) for name in agents]:
        print(f"{harness.name}: installing, if it is not there", file=sys.stderr)
        try:
            shared = asyncio.run(shared_with(harness, installs_of(settings.programs), brought=settings.agent_python))
        except InstallFailed as error:
            print(f"error: {error}", file=sys.stderr)
            failed += 1
            continue
        for one in shared:
            print(f"{harness.name}: {one.source}")
    return FAILED if failed else OK


@group.command()
@click.argument("agents", nargs=-1, metavar="[AGENT]...", shell_complete=agent_names)
@click.option("--old", "is_old", is_flag=True, help="All that no run would take today.")
@data_dir_option
def remove(agents: tuple[str, ...], is_old: bool, data_dir: Path | None) -> int:
    """Remove the programs of agents, or what is old. What a sandbox is shown right now stays; what a run lacks it installs again.

    \b
    gym-bus programs remove --old
    gym-bus programs remove openclaw
    """  # noqa: D301  \b keeps click from wrapping the examples
    from adapters.harnesses.installing.kept import remove as remove_one  # noqa: PLC0415  not needed for --help

    if bool(agents) == is_old:
        msg = "name agents, or --old"
        raise click.UsageError(msg)
    names = {_harness(name).name for name in agents}
    found = [
        one
        for one in _kept(settings_for(data_dir))
        if (not one.is_wanted if is_old else one.place.name.rpartition("-")[0] in names)
    ]
    for one in found:
        if one.is_shown:
            print(f"{one.place.name} is shown to a sandbox, and stays", file=sys.stderr)
            continue
        remove_one(one)
        print(f"{one.place.name} is removed: {one.size / MIB:,.0f} MiB")
    if not found:
        print("nothing to remove")
    return FAILED if any(one.is_shown for one in found) else OK


def _kept(settings: Settings) -> list[Kept]:
    from adapters.harnesses.installing import installs_of  # noqa: PLC0415  not needed for --help
    from adapters.harnesses.installing.kept import kept_below, wanted_now  # noqa: PLC0415  the same
    from adapters.harnesses.table import BROUGHT, HARNESSES  # noqa: PLC0415  the same

    wanted = wanted_now((*HARNESSES.values(), *BROUGHT.values()), settings.agent_python)
    return kept_below(installs_of(settings.programs), wanted)


def _harness(name: str) -> Harness:
    """Return the harness of a type, with or without `_agent`."""
    from adapters.harnesses.table import BROUGHT, HARNESSES  # noqa: PLC0415  not needed for --help
    from gym_bus.config_errors import types_meant  # noqa: PLC0415  the same

    known = {one.name: one for one in (*HARNESSES.values(), *BROUGHT.values()) if one.packages}
    found = known.get(name) or known.get(f"{name}_agent")
    if found is None:
        msg = f"no agent {name!r} has a program that is installed; {types_meant(name, list(known))}"
        raise click.UsageError(msg)
    return found


def _state(one: Kept) -> str:
    states = (
        "shown to a sandbox" if one.is_shown else "",
        "" if one.is_wanted else "old, or a version that a run named",
    )
    return ", ".join(state for state in states if state)
