"""The top of the command tree, and where errors become one line and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from gym_bus.cli.lazy import CONTEXT, DETACHED, FAILED, OK, USAGE, LazyGroup, fail

FOLDERS: Final = ("actors", "adapters", "projections", "providers", "schemas", "tools")

COMMANDS: Final = {
    "eval": ("gym_bus.cli.eval:group", "Run agents on tasks; watch, list, cancel and resume runs."),
    "session": ("gym_bus.cli.session:group", "Give further inputs to sessions that wait for them."),
    "log": ("gym_bus.cli.log:group", "Show the events of a run, or follow them."),
    "sql": ("gym_bus.cli.sql:command", "Ask the projection of the log anything."),
    "bus": ("gym_bus.cli.bus:group", "Start, stop and look at the bus and its processes."),
    "gateway": ("gym_bus.cli.gateway:group", "Start, stop and look at the gateway by which agents call their model."),
    "programs": ("gym_bus.cli.programs:group", "List, install and remove the programs of agents."),
    "dlq": ("gym_bus.cli.dlq:group", "List requests that nobody could finish, and try them again."),
    "doctor": ("gym_bus.cli.doctor:command", "Check processes, store and the log's invariants."),
}


def _show_version(ctx: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not ctx.resilient_parsing:
        from gym_bus.cli.setup import version  # noqa: PLC0415  reads the package's metadata

        click.echo(f"gym-bus {version()}")
        ctx.exit()


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings=CONTEXT)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
def group() -> None:
    """Run language-model agents on tasks, on an event log that loses nothing.

    \b
    gym-bus eval run --config examples/quickstart.yaml
    gym-bus eval run --reasoning-gym chain_sum --model-url http://127.0.0.1:8000/v1 --model my-model
    gym-bus eval status
    gym-bus sql "SELECT state, count(*) FROM rollouts GROUP BY state"
    """  # noqa: D301  \b keeps click from wrapping the examples


def check_folders() -> None:
    """Fail loudly if a top-level package of ours is hidden by a foreign one of the same name."""
    import importlib.util  # noqa: PLC0415  not needed for --help

    from gym_bus.errors import Permanent  # noqa: PLC0415  the same

    root = Path(__file__).resolve().parent.parent.parent
    for name in FOLDERS:
        spec = importlib.util.find_spec(name)
        found = list(spec.submodule_search_locations or ()) if spec else []
        if not found or Path(found[0]).resolve() != root / name:
            msg = (
                f"package {name!r} is {found[0] if found else 'missing'}, not the one beside {root / 'gym_bus'}: "
                f"start gym-bus from another directory, or unset PYTHONPATH"
            )
            raise Permanent(msg)


def _told(error: click.ClickException) -> int:
    """Show what click refused in a line, as other errors are; return the exit code."""
    said = " ".join(error.format_message().split()).removesuffix(".")
    if not isinstance(error, click.UsageError):
        return fail(click.ClickException(said), error.exit_code)
    command = error.ctx.command_path if error.ctx else "gym-bus"
    return fail(click.ClickException(f"{said}; see `{command} --help`"), USAGE)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    try:
        code = group.main(args=arguments, prog_name="gym-bus", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as shown:
        click.echo(shown.message)
        return USAGE
    except click.ClickException as error:
        return _told(error)
    except (click.Abort, KeyboardInterrupt):
        sys.stderr.write("\ninterrupted\n")
        return DETACHED
    except BrokenPipeError:
        return FAILED
    except Exception as error:
        from gym_bus.errors import BadConfig, BadTaskset, GymBusError  # noqa: PLC0415  only when there is one

        if not isinstance(error, GymBusError):
            raise
        return fail(error, USAGE if isinstance(error, BadConfig | BadTaskset) else FAILED)
    return code if isinstance(code, int) else OK
