"""What is checked before anything is started: a mistake costs seconds and leaves nothing behind."""

from __future__ import annotations

import json
import os
from collections.abc import Container
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from gym_bus import local_model
from gym_bus.cli.remote_checks import check_given, check_remote
from gym_bus.errors import BadConfig
from schemas.config import JsonlTaskset, LocalModel, ReplayModel, ServedModel
from schemas.harnesses import BehindGateway, HarnessAgent, Program, RemoteAgent
from schemas.registry import EVENT_TYPES, upcast
from schemas.sandboxes import NoImage, with_image
from schemas.tasks import TaskInput
from schemas.values import Message, Sampling

if TYPE_CHECKING:
    from gym_bus.settings import Settings
    from schemas.config import ModelConfig, RunConfig

CONFIG: Final = "run_config.yaml"
RESULT_FILES: Final = ("rollouts.jsonl", "failures.jsonl", "metrics.json", "manifest.json", "run.json")
MARK: Final = "run.json"
RECORDED_MAX_CHARS: Final = 64 * 1024 * 1024
UNDECODABLE: Final = "undecodable"
"""What an export says of an event that it could not read."""


def check_config(
    config: RunConfig, api_key: str | None, settings: Settings, *, sandbox_keys: Container[str] = ()
) -> None:
    """Raise `BadConfig` or `BadTaskset` if the run could not work: no tasks, no sandbox, no model."""
    if config.shards > 1 and not settings.bus_url:
        msg = "shards: the embedded bus has one; set GYM_BUS_BUS_URL to use a server with more"
        raise BadConfig(msg)
    if config.taskset.type == "reasoning_gym" and not config.taskset.datasets:
        msg = "taskset.datasets: no tasks in it; name at least one dataset"
        raise BadConfig(msg)
    # Before its tasks, which would be blamed for what is the configuration's.
    if isinstance(config.agent, BehindGateway):
        _check_sampling(config)
        _check_agent(config, config.agent, settings)
    if config.taskset.type == "jsonl":
        _check_tasks(config, config.taskset)
    if config.taskset.type == "harbor":
        from gym_bus.cli.folder_checks import check_folders_of_tasks  # noqa: PLC0415  only for them

        check_folders_of_tasks(config, config.taskset)
    if config.agent.needs_sandbox:
        from gym_bus.cli.sandbox_checks import check_sandboxes  # noqa: PLC0415  only for agents that use one

        check_sandboxes(config, have_keys=sandbox_keys, is_here=not settings.bus_url)
    if isinstance(config.agent, RemoteAgent) and not settings.bus_url:  # whose hosts may reach what this machine cannot
        from gym_bus.cli.remote_checks import check_there  # noqa: PLC0415  only for them

        check_there(config.agent)
    if config.asks_a_model:
        _check_model(config.model, api_key)


def _check_model(model: ModelConfig, api_key: str | None) -> None:
    """Raise `BadConfig` for a model that cannot be asked, or is not there."""
    if isinstance(model, ServedModel):
        from gym_bus.cli.model_checks import check_endpoint  # noqa: PLC0415  only for real models

        check_endpoint(model, api_key)
    if isinstance(model, LocalModel) and local_model.weights_path() is None:
        msg = f"model: {local_model.MISSING}"
        raise BadConfig(msg)
    if isinstance(model, ReplayModel):
        _check_recording(Path(model.recording))


def _check_tasks(config: RunConfig, taskset: JsonlTaskset) -> None:
    """Raise `BadTaskset` for a file that cannot be read, `BadConfig` for tasks that the run's agent or sandboxes cannot have.

    Of what an agent's own program cannot do, that none of the tasks can be done: others may be.
    """
    from adapters.benchmarks import load_tasks  # noqa: PLC0415  only then
    from adapters.benchmarks.harbor import why_not  # noqa: PLC0415  the same

    tasks = load_tasks(taskset)
    try:
        for task in tasks:
            with_image(config.sandbox, task.image)
            if why := why_not(task, config.agent):
                raise BadConfig(f"{task.task_id}: {why}")
            if isinstance(config.agent, RemoteAgent):
                check_given(config, config.agent, task.input, task.install)
    except NoImage as error:
        raise BadConfig(str(error)) from error
    if isinstance(config.agent, HarnessAgent):
        _check_some_can_be_done(config, config.agent, [task.input for task in tasks])


def _check_some_can_be_done(config: RunConfig, agent: Program, tasks: list[TaskInput]) -> None:
    from adapters.harnesses import asking  # noqa: PLC0415  only for them
    from adapters.harnesses.base import Unsupported  # noqa: PLC0415  the same

    refused = None
    for task in tasks:
        try:
            if task.continues:
                asking.check_continues(agent, task.continues)
            asking.check(agent, task, config.sandbox)
        except Unsupported as error:
            refused = refused or f"{task.task_id}: {error}"
        else:
            return
    raise BadConfig(refused or "no tasks")


def _check_sampling(config: RunConfig) -> None:
    """Raise `BadConfig` for sampling that is asked of an agent with a loop of its own."""
    if config.responses_create_params != Sampling():
        msg = f"responses_create_params: {config.agent.type} chooses its sampling itself; model.sampling_overrides win over it"
        raise BadConfig(msg)


def _check_agent(config: RunConfig, agent: Program | RemoteAgent, settings: Settings) -> None:
    if isinstance(agent, RemoteAgent):
        check_remote(config, agent, settings)
    else:
        _check_program(config, agent)


def _check_program(config: RunConfig, agent: Program) -> None:
    """Raise `BadConfig` for an agent's own program that cannot do what is asked of it, or not in such a sandbox."""
    from adapters.harnesses import asking  # noqa: PLC0415  only for them
    from adapters.harnesses.base import Unsupported  # noqa: PLC0415  the same

    try:
        task = TaskInput(task_id="t", messages=(Message(role="user", content="a task"),))
        asking.check(agent, task, config.sandbox)
        if elsewhere := config.checkpoints.restore_in:
            asking.check(agent, task, elsewhere)
    except Unsupported as error:
        msg = f"agent: {error}"
        raise BadConfig(msg) from error


def _check_recording(path: Path) -> None:
    """Raise `BadConfig` if a recording is no file, or does not begin with an event. The rest is read by whoever replays it."""
    if not path.is_file():
        msg = f"model.recording: no file {path}; `gym-bus log export RUN --out FILE` writes one"
        raise BadConfig(msg)
    try:
        with path.open(encoding="utf-8") as file:
            line = next((line for line in iter(lambda: file.readline(RECORDED_MAX_CHARS), "") if line.strip()), "")
        head = json.loads(line)
        if head["type"] != UNDECODABLE:
            type_, _ = upcast(head["type"], head["data"])
            _ = EVENT_TYPES[type_], head["run_id"], head["event_id"]
    except OSError as error:
        msg = f"model.recording: {path}: cannot be read: {error.strerror or error}"
        raise BadConfig(msg) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        said = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        msg = f"model.recording: {path}:1: no event as `gym-bus log export` writes them: {said[:200]}"
        raise BadConfig(msg) from error


def run_in(output: Path) -> dict[str, Any] | None:
    """Return what run an output directory belongs to ({"run_id": …}), None if it has none of our files."""
    for name in (MARK, "manifest.json"):
        try:
            found = json.loads((output / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and isinstance(found.get("run_id"), str):
            return found
    return {"run_id": None} if any((output / name).exists() for name in RESULT_FILES) else None


def check_room(output: Path, *, overwrite: bool) -> str | None:
    """Return the run whose results are in the way, None if there are none; raises `BadConfig` if they may not be moved."""
    found = run_in(output)
    if found is None:
        return None
    if not overwrite:
        owner = f"of run {found['run_id']}" if found["run_id"] else "of some run"
        msg = (
            f"{output} has the results {owner}: --overwrite moves them aside, "
            f"--resume --output {output} goes on with that run, --output names another directory"
        )
        raise BadConfig(msg)
    return str(found["run_id"]) if found["run_id"] else None


def make_room(output: Path, *, overwrite: bool) -> Path | None:
    """Return where old results were moved, None if there were none; raises `BadConfig` if they may not be moved."""
    check_room(output, overwrite=overwrite)
    if run_in(output) is None:
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    aside = output.with_name(f"{output.name}.{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = output.with_name(f"{output.name}.{stamp}-{number}")
    output.rename(aside)
    return aside


def write_config(output: Path, config: RunConfig) -> None:
    """Write the resolved configuration beside the results, as `--config` takes it; without the names under which keys are kept."""
    values = _without_keys(config.model_dump(mode="json", exclude_none=True))
    (output / CONFIG).write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")


def _without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_keys(item) for key, item in value.items() if key not in {"policy_api_key", "api_key"}}
    return [_without_keys(item) for item in value] if isinstance(value, list) else value


def mark_output(output: Path, run_id: str, data_dir: Path) -> None:
    """Take the output directory: write whose it is, so that `--resume` finds the run. Raises `BadConfig` if another run took it."""
    text = json.dumps({"run_id": run_id, "data_dir": str(data_dir)}) + "\n"
    temporary = output / f".{MARK}.{os.getpid()}"
    try:
        output.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        try:
            os.link(temporary, output / MARK)  # of two at once one succeeds
        finally:
            temporary.unlink()
    except FileExistsError as error:
        owner = (run_in(output) or {}).get("run_id")
        if owner == run_id:
            return
        msg = f"{output} has just been taken by run {owner}: --output names another directory"
        raise BadConfig(msg) from error
    except OSError as error:
        msg = f"--output: {output} cannot be written to: {error.strerror or error}"
        raise BadConfig(msg) from error
