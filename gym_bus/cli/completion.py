"""What a shell is told when it completes a command: agents, types of parts, runs, their rollouts, folders of tasks.

It is asked at every press of a key: nothing is started, nothing is said, and what takes long is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

ANSWER_WITHIN_S: Final = 2.0
SHOWN: Final = 200
RUNS: Final = "SELECT run_id FROM runs ORDER BY requested_at DESC LIMIT 200"
ROLLOUTS: Final = "SELECT rollout_id FROM waiting_sessions WHERE run_id = ? ORDER BY rollout_id LIMIT 200"


def runs(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a run, the newest first; of none where nothing runs and there is no projection."""
    return _beginning(incomplete, _asked(ctx, RUNS))


def waiting_rollouts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the id of a rollout of the run before it: of those that wait for an input."""
    return _beginning(incomplete, _asked(ctx, ROLLOUTS, ctx.params.get("run_id")))


def agents(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of an agent, as it is short for its type."""
    from gym_bus.cli.flags import agent_types  # noqa: PLC0415  slow to import

    return _beginning(incomplete, [type_.removesuffix("_agent") for type_ in sorted(agent_types())])


def overrides(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `PART.type=` with the types of that part, and anything else as a folder of tasks.

    Some shells take `=` for a word of its own, which click leaves out if it is the last: what stands before it is then among the
    words before.
    """
    before: tuple[str, ...] = ctx.params.get("overrides") or ()
    key, is_joined, value = incomplete.rpartition("=")
    if key:
        return [CompletionItem(f"{key}{is_joined}{item.value}") for item in _types(key, value)]
    if not incomplete and before and before[-1].endswith(".type"):
        return _types(before[-1], "")
    if before[-1:] == ("=",) and len(before) > 1:
        return _types(before[-2], incomplete)
    return [CompletionItem(incomplete, type="dir")]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a file."""
    return [CompletionItem(incomplete, type="file")]


def _types(key: str, incomplete: str) -> list[CompletionItem]:
    """Return the types that `key` (such as `agent.type`) may have."""
    from gym_bus.config_errors import types_of  # noqa: PLC0415  slow to import

    part, _, last = key.lstrip("+").rpartition(".")
    return _beginning(incomplete, types_of(part)) if last == "type" else []


def _beginning(incomplete: str, names: Iterable[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:SHOWN]


def _asked(ctx: click.Context, sql: str, *values: Any) -> Sequence[str]:
    """Return the first column of an answer, nothing if there is none in time."""
    from gym_bus.cli import questions  # noqa: PLC0415  slow to import
    from gym_bus.cli.setup import settings_for  # noqa: PLC0415  the same
    from gym_bus.errors import GymBusError  # noqa: PLC0415  the same

    given = ctx.params.get("data_dir")

    async def ask() -> Sequence[str]:
        async with asyncio.timeout(ANSWER_WITHIN_S):
            [told] = await questions.ask(settings_for(Path(given) if given else None), (sql, values))
            return [str(row[0]) for row in told.answer.rows]

    try:
        return asyncio.run(ask())
    except (GymBusError, TimeoutError):
        return ()


run_argument = click.argument("run_id", metavar="RUN", shell_complete=runs)
maybe_run_argument = click.argument("run_id", metavar="[RUN]", required=False, shell_complete=runs)
rollout_argument = click.argument("rollout_id", metavar="ROLLOUT", shell_complete=waiting_rollouts)
