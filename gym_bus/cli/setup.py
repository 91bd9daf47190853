"""What every command needs first: settings, quiet logging, and everything up and running."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gym_bus.errors import BadConfig, Retryable
from gym_bus.kept_process import children_environment, spawn_detached
from gym_bus.settings import Settings, load_settings
from gym_bus.status_file import logs_dir, read_status, supervisor_pid

if TYPE_CHECKING:
    from gym_bus.nats_bus import NatsBus

UP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.01
PROBLEM_PATIENCE_S: Final = 5.0

data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the log and the projection are kept (default: GYM_BUS_DATA_DIR, else .gym-bus).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def version() -> str:
    """Return the version of gym-bus."""
    from importlib import metadata  # noqa: PLC0415  slow to import

    try:
        return metadata.version("gym-bus")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def settings_for(data_dir: Path | None) -> Settings:
    """Return the settings, `--data-dir` over the environment; from now on nothing is logged below warnings."""
    import structlog  # noqa: PLC0415  not needed for --help

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),  # looked up anew: it may be replaced
    )
    settings = load_settings(data_dir=data_dir)
    nearest = next(place for place in (settings.data_dir, *settings.data_dir.parents) if place.exists())
    if not nearest.is_dir():
        msg = f"the data directory {settings.data_dir} cannot be: {nearest} is no directory (GYM_BUS_DATA_DIR, --data-dir)"
        raise BadConfig(msg)
    return settings


def start_supervisor(settings: Settings, warm: str = "") -> None:
    """Start the supervisor if none runs; of two started at once one ends by itself.

    `warm` is the kind of taskset about to be asked for: hosts import what it needs while the bus comes up.
    """
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        msg = f"the data directory {settings.data_dir} cannot be made: {error.strerror or error} (GYM_BUS_DATA_DIR, --data-dir)"
        raise BadConfig(msg) from error
    if supervisor_pid(settings.data_dir) is None:
        spawn_detached(
            (sys.executable, "-m", "gym_bus.supervisor"),
            {**children_environment(os.environ, settings.data_dir), "GYM_BUS_WARM": warm},
            logs_dir(settings.data_dir) / "supervisor.log",
        )


async def await_up(settings: Settings) -> dict[str, Any]:
    """Wait until the bus is up and provisioned; return the supervisor's status. Raises `Retryable` with its problem."""
    began = asked = time.monotonic()
    while True:
        status = read_status(settings.data_dir)
        pid = supervisor_pid(settings.data_dir)
        is_current = status is not None and pid is not None and status.get("pid") == pid
        bus: dict[str, Any] = status["bus"] if status and is_current else {}
        if status and is_current and status["state"] == "running" and bus.get("state") == "running":
            return status
        now = time.monotonic()
        problem = bus.get("problem")
        if now - began > (PROBLEM_PATIENCE_S if problem else UP_TIMEOUT_S):
            msg = problem or f"nothing came up within {UP_TIMEOUT_S:.0f} s: see {logs_dir(settings.data_dir)}"
            raise Retryable(msg)
        if pid is None and now - asked > 1:
            asked = now
            start_supervisor(settings)
        await asyncio.sleep(POLL_S)


async def await_projector(settings: Settings, patience_s: float) -> bool:
    """Wait until the projector answers questions; return whether it does."""
    from gym_bus.client import ProjectorSilent, QueryFailed, connect_cli, query  # noqa: PLC0415  slow to import

    deadline = time.monotonic() + patience_s
    async with connect_cli(settings) as bus:
        while (left_s := deadline - time.monotonic()) > 0:
            with suppress(ProjectorSilent, QueryFailed):
                await query(bus, "SELECT count(*) FROM projection_cursor", timeout_s=min(5.0, left_s))
                return True
            await asyncio.sleep(POLL_S * 10)
    return False


@asynccontextmanager
async def up_and_connected(settings: Settings, warm: str = "") -> AsyncGenerator[NatsBus]:
    """Bring up what is missing and connect as `cli`; see `start_supervisor` for `warm`."""
    start_supervisor(settings, warm)
    from gym_bus.client import connect_cli  # noqa: PLC0415  the processes start while this is imported

    await await_up(settings)
    async with connect_cli(settings) as bus:
        yield bus
