"""A command group that imports a subcommand's module only when it is called, so that `--help` stays quick."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final

import click

from gym_bus.cli.plain import plain

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
PAUSED: Final = 3
DETACHED: Final = 130
CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Command(click.Command):
    """A command that refuses an option which is given twice and can have one value only: the last one would win in silence."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Look at what was given before click reads it."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option in given:
                if isinstance(option, click.Option) and _has_one_value(option) and given.count(option) > 1:
                    msg = f"{option.opts[-1]} is given twice"
                    raise click.UsageError(msg, ctx)
        return super().parse_args(ctx, args)


def _has_one_value(option: click.Option) -> bool:
    return not (option.multiple or option.is_flag or option.count)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command


class LazyGroup(click.Group):
    """A group whose commands are named as {name: ("module:attribute", one line of help)}."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        """Take click's arguments, and the table."""
        super().__init__(*args, **kwargs)
        self._lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; click suggests near names for None."""
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        rows = [(name, text) for name, (_, text) in self._lazy.items()]
        rows += [
            (n, c.get_short_help_str(80)) for n in super().list_commands(ctx) if (c := super().get_command(ctx, n))
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def fail(error: Exception, code: int) -> int:
    """Print an error for a person on standard error and return `code`."""
    first, *rest = plain(str(error)).split("\n")
    sys.stderr.write(f"error: {first}\n" + "".join(f"       {line}\n" for line in rest if line.strip()))
    return code
