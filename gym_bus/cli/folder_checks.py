"""Whether the tasks of a folder can be read, and done by the run's agent in sandboxes that are to be had here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from gym_bus.cli.remote_checks import check_given
from gym_bus.errors import BadConfig
from schemas.harnesses import RemoteAgent
from schemas.machines import Unfit, fitted

if TYPE_CHECKING:
    from schemas.config import HarborTaskset, RunConfig
    from schemas.sandboxes import SandboxConfig

SHOWN: Final = 20


def check_folders_of_tasks(config: RunConfig, taskset: HarborTaskset) -> None:
    """Have images built, and say what was passed over.

    Raises `BadTaskset` for what cannot be read, `BadConfig` for what cannot be done.
    """
    from adapters.benchmarks.harbor import found_in, why_not  # noqa: PLC0415  only then
    from gym_bus.cli.sandbox_checks import check_sandbox  # noqa: PLC0415  the same

    found = found_in(taskset)
    _note([*found.notes, *(f"{name} is left out: {why}" for name, why in found.skipped.items())])
    wanted: list[SandboxConfig] = []
    trouble = []
    is_cut = config.limit is not None and config.shuffle_seed is None
    for task in found.tasks[: config.limit] if is_cut else found.tasks:
        if why := why_not(task, config.agent):
            trouble.append(f"{task.task_id}: {why}")
        if isinstance(config.agent, RemoteAgent):
            check_given(config, config.agent, task.input, task.install)
        try:
            wanted += [
                fitted(config.sandbox, task.machine),
                fitted(config.grading_sandbox or config.sandbox, task.grading),
            ]
        except Unfit as error:
            trouble.append(f"{task.task_id}: {error}")
    if trouble:
        more = [f"and {len(trouble) - SHOWN} more"] if len(trouble) > SHOWN else []
        raise BadConfig("\n".join([*trouble[:SHOWN], *more]))
    seen: list[tuple[str, str | None, str | None]] = []
    for sandbox in wanted:
        key = (sandbox.type, getattr(sandbox, "image", None), getattr(sandbox, "dockerfile", None))
        if key not in seen:
            seen.append(key)
            check_sandbox("sandbox", sandbox)


def _note(notes: list[str]) -> None:
    for note in notes[:SHOWN]:
        print(f"note: {note}", file=sys.stderr)
    if len(notes) > SHOWN:
        print(f"note: and {len(notes) - SHOWN} more of these", file=sys.stderr)
