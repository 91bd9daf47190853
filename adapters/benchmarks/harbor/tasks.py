"""From folders to tasks. What cannot be done here is said by name, with what is in its way; `tests/` goes to the verifier alone."""

from __future__ import annotations

import base64
import glob
import math
import os
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from adapters.benchmarks.harbor import files, toml, workdir
from adapters.benchmarks.harbor.agents import ROOT
from adapters.benchmarks.harbor.reach import reach_of
from adapters.benchmarks.harbor.toml import DatasetToml, Environment, TaskToml
from gym_bus.errors import BadTaskset
from schemas.config import HarborTaskset
from schemas.machines import Machine
from schemas.sandboxes import Layout, Reach
from schemas.tasks import McpServer, Solution, Staged, Task, TaskInput
from schemas.values import Message

VERIFIER: Final = "harbor"
DATASET: Final = "dataset.toml"
TESTS: Final = "/tests"
REWARDS: Final = "/logs/verifier"
SOLUTION: Final = "/solution"
LOGS: Final = ("/logs/agent", "/logs/artifacts")
CANARY: Final = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
HOST_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
EVERYTHING: Final = ("**",)
KEYS: Final = {"workspace": "environment.workdir"}
"""Where in the file stands what a model of ours calls otherwise."""
COMPOSE: Final = ("docker-compose.yaml", "docker-compose.yml")
REASONS_SHOWN: Final = 20


@dataclass
class Found:
    """The tasks of a folder, what was noted of them, and why others were left out, by their names."""

    tasks: list[Task] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def load(config: HarborTaskset) -> list[Task]:
    """Return the tasks of a folder; raises `BadTaskset`."""
    return found_in(config).tasks


def found_in(config: HarborTaskset) -> Found:
    """Read a folder of one task or of many.

    Raises `BadTaskset` for what is wrong, and for what is not supported unless it may be left out.
    """
    root = Path(config.path).expanduser()
    folders = files.folders_of(root)
    found = Found()
    dataset = _dataset(root, found)
    refused: dict[str, str] = {}
    broken: list[str] = []
    for index, folder in enumerate(folders):
        try:
            found.tasks.append(_Reading(folder, config, dataset, found).task(index))
        except _Unsupported as error:
            refused[folder.name] = str(error)
        except BadTaskset as error:
            broken.append(str(error))
    if broken:
        raise BadTaskset("\n".join(_first(broken)))
    if unknown := set(dataset.gym.tasks) - {folder.name for folder in folders}:
        found.notes.append(
            f"{root / DATASET}: gym.tasks names tasks that are not there: {', '.join(sorted(unknown)[:5])}"
        )
    if refused and not (config.skip_unsupported and found.tasks):
        lines = _first([f"{name}: {why}" for name, why in refused.items()])
        lines += ["taskset.skip_unsupported=true leaves such tasks out"] if found.tasks else []
        raise BadTaskset("\n".join(lines))
    found.skipped = refused
    return found


def _first(reasons: list[str]) -> list[str]:
    """Return the first few, and how many more there are."""
    more = len(reasons) - REASONS_SHOWN
    return [*reasons[:REASONS_SHOWN], *([f"and {more} more tasks"] if more > 0 else [])]


class _Unsupported(BadTaskset):
    """A task that is as it should be asks for something that is not to be had here."""


def _dataset(root: Path, found: Found) -> DatasetToml:
    path = root / DATASET
    if not path.exists():
        return DatasetToml()
    dataset = toml.read(DatasetToml, path, toml.parsed(path))
    ours = [note for key, note in toml.unknown_in(dataset) if key.startswith("gym.")]
    found.notes += [f"{path}: {note}" for note in ours]
    return dataset


class _Reading:
    """One folder being read."""

    def __init__(self, folder: Path, config: HarborTaskset, dataset: DatasetToml, found: Found) -> None:
        self._folder = folder
        self._config = config
        self._gym = dataset.gym
        path = folder / files.TASK
        values = self._overridden(toml.parsed(path))
        self._toml = toml.read(TaskToml, path, values)
        found.notes += [f"{path}: {note}" for _, note in toml.unknown_in(self._toml)]
        self._name = folder.name

    def task(self, index: int) -> Task:
        """Return the task; raises `BadTaskset`, `_Unsupported`."""
        if why := next(self._not_here(), None):
            raise _Unsupported(why)
        said = self._toml
        environment, agent = said.environment, said.agent
        tests = files.files_in(self._folder / "tests")
        if "test.sh" not in tests:
            raise BadTaskset(f"{self._folder / 'tests/test.sh'}: no such file; it is what grades the task")
        workspace = self._workspace()
        machine = self._machine(environment, self._folder / "environment", workspace, (*LOGS, SOLUTION))
        user = None if agent.user in ROOT else agent.user
        whole = not said.verifier.is_separate
        given = TaskInput(
            task_id=self._name,
            messages=(Message(role="user", content=self._instruction()),),
            hands_in="machine" if whole else "files",
            mcp_servers=tuple(
                McpServer(**server.model_dump(exclude=set(server.model_extra or {})))
                for server in environment.mcp_servers
            ),
            skills_dir=environment.skills_dir,
        )
        agent_reach = (
            self._reach(agent) if agent.network_mode or agent.allow_internet is not None else self._reach(environment)
        )
        return Task(
            index=index,
            input=given,
            verifier=VERIFIER,
            verifier_data=self._verifier_data(tests, workspace, is_whole=whole),
            machine=machine.replaced(user=user, agent=agent_reach),
            grading=self._grading(workspace),
            timeout_s=None if agent.timeout_sec is None else self._in_time(agent.timeout_sec),
            agents=self._gym.allowed_agents,
            user=agent.user,
            solution=self._solution(),
        )

    def _overridden(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the file's values with what the dataset says of this task's environment."""
        changes = self._gym.tasks.get(self._folder.name, {})
        if unknown := set(changes) - {"environment"}:
            raise BadTaskset(
                f"{DATASET}: gym.tasks.{self._folder.name}: unknown key {min(unknown)!r}; there is 'environment'"
            )
        changed = changes.get("environment", {})
        if unknown := set(changed) - set(Environment.model_fields):
            meant = toml.meant_by(min(unknown), Environment)
            raise BadTaskset(
                f"{DATASET}: gym.tasks.{self._folder.name}.environment: unknown key {min(unknown)!r}{meant}"
            )
        if not changed:
            return values
        before = values.get("environment", {})
        if not isinstance(before, dict):
            return values
        own, given = before.get("env", {}), changed.get("env")
        env = {"env": {**own, **given}} if isinstance(own, dict) and isinstance(given, dict) else {}
        return {**values, "environment": {**before, **changed, **env}}

    def _not_here(self) -> Iterator[str]:
        """Yield what is in the way of running the task here."""
        said = self._toml
        yield from _not_made("environment", said.environment)
        if said.verifier.environment is not None:
            yield from _not_made("verifier.environment", said.verifier.environment)
        if said.steps or (self._folder / "steps").is_dir():
            yield "it has several steps, which is not supported yet"
        if any((self._folder / "environment" / name).exists() for name in COMPOSE):
            yield f"it is made of several containers ({COMPOSE[0]}), and a sandbox is one"
        if said.verifier.collect:
            yield "verifier.collect: what services hold cannot be collected: a sandbox is one container"
        if said.verifier.user in ROOT:
            yield f"verifier.user: {said.verifier.user!r}: nothing runs as root in a sandbox"
        for artifact in said.artifacts:
            if artifact.service or artifact.destination or artifact.exclude:
                yield f"artifacts: {artifact.source!r}: service, destination and exclude are not supported yet"

    def _instruction(self) -> str:
        path = self._folder / "instruction.md"
        lines = files.text_of(path).splitlines(keepends=True)
        while lines and (CANARY.fullmatch(lines[0].strip()) or not lines[0].strip()):
            lines.pop(0)
        text = "".join(lines).rstrip()
        if not text:
            raise BadTaskset(f"{path}: it says nothing")
        return text

    def _dockerfile(self, directory: Path) -> Path | None:
        path = directory / "Dockerfile"
        if not os.path.lexists(path):
            return None
        if not path.is_file():
            raise BadTaskset(f"{path}: no regular file")
        files.check_links(directory)
        return path

    def _workspace(self) -> str:
        said = self._toml.environment
        if said.workdir and not said.workdir.strip("/"):
            where = f"{self._folder / files.TASK}: environment.workdir"
            raise BadTaskset(f"{where}: {said.workdir} cannot be the workspace: all of the machine is in it")
        dockerfile = self._dockerfile(self._folder / "environment")
        found = said.workdir
        if found is None and dockerfile and not said.docker_image:
            try:
                found = workdir.workdir_of(files.text_of(dockerfile))
            except BadTaskset as error:
                raise BadTaskset(f"{dockerfile}: {error}") from error
        return found if found is not None and found.strip("/") else workdir.USUAL

    def _machine(self, said: Environment, directory: Path, workspace: str, scratch: tuple[str, ...]) -> Machine:
        dockerfile = None if said.docker_image else self._dockerfile(directory)
        times, memory = self._gym.defaults.resource_multiplier, said.memory_mb
        has_image = dockerfile is not None or said.docker_image is not None
        try:
            return Machine(
                image=said.docker_image,
                dockerfile=None if dockerfile is None else str(dockerfile.resolve()),
                image_timeout_s=self._in_time(said.build_timeout_sec) if has_image else None,
                layout=Layout(
                    workspace=workspace,
                    is_seeded=has_image,
                    scratch=scratch,
                    environment=self._variables(said.env, "environment.env"),
                ),
                cpus=None if said.cpus is None else float(math.ceil(said.cpus * times)) if times != 1 else said.cpus,
                memory_mib=None if memory is None else math.ceil(memory * times),
            )
        except ValidationError as error:
            first = error.errors()[0]
            where = KEYS.get(str(first["loc"][0]), ".".join(map(str, first["loc"]))) if first["loc"] else "environment"
            raise BadTaskset(
                f"{self._folder / files.TASK}: {where}: {first['msg'].removeprefix('Value error, ')}"
            ) from error

    def _grading(self, workspace: str) -> Machine:
        """Return the machine for the tests: of an image of their own if there is one, else like the agent's."""
        verifier = self._toml.verifier
        said, directory = self._toml.environment, self._folder / "environment"
        if verifier.is_separate:
            own = verifier.environment
            if (own and own.docker_image) or (self._folder / "tests" / "Dockerfile").exists():
                said, directory = own or Environment(), self._folder / "tests"
            elif own:
                said = own.model_copy(update={"docker_image": said.docker_image})
        machine = self._machine(said, directory, workspace, (*LOGS, REWARDS, TESTS))
        environment = {**machine.layout.environment, **self._variables(verifier.env, "verifier.env")}
        layout = machine.layout.replaced(environment=environment)
        is_own = verifier.network_mode or verifier.allow_internet is not None
        return machine.replaced(layout=layout, user=verifier.user, verify=self._reach(verifier if is_own else said))

    def _verifier_data(self, tests: dict[str, bytes], workspace: str, *, is_whole: bool) -> dict[str, Any]:
        return {
            "command": _script(f"{TESTS}/test.sh"),
            "tests": {},
            "staged": Staged(at=TESTS, files=_packed(tests)).model_dump(mode="json"),
            "rewards_in": REWARDS,
            "artifacts": list(self._named(workspace) if is_whole else self._artifacts(workspace)),
            "is_whole": is_whole,
            "timeout_s": self._in_time(self._toml.verifier.timeout_sec),
        }

    def _named(self, workspace: str) -> tuple[str, ...]:
        """Return the artifacts that are in the workspace, where all of that is handed in: they are only looked for."""
        paths = [posixpath.normpath(posixpath.join(workspace, artifact.source)) for artifact in self._toml.artifacts]
        inside = [path.removeprefix(f"{workspace}/") for path in paths if path.startswith(f"{workspace}/")]
        return tuple(map(glob.escape, inside))

    def _artifacts(self, workspace: str) -> tuple[str, ...]:
        """Return which files of the workspace are handed in, as patterns of nothing but themselves; all if the task does not say."""
        found = []
        for artifact in self._toml.artifacts:
            path = posixpath.normpath(posixpath.join(workspace, artifact.source))
            if path == workspace:
                return EVERYTHING
            if not path.startswith(f"{workspace}/"):
                raise _Unsupported(
                    f"artifacts: {artifact.source!r} is not in {workspace}, and nothing else is handed in"
                )
            found.append(glob.escape(path.removeprefix(f"{workspace}/")))
        return tuple(found) or EVERYTHING

    def _solution(self) -> Solution | None:
        found = files.files_in(self._folder / "solution")
        if "solve.sh" not in found:
            return None
        said = self._variables(self._toml.solution.env, "solution.env")
        exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in said.items())
        return Solution(
            staged=Staged(at=SOLUTION, files=_packed(found)), command=exports + _script(f"{SOLUTION}/solve.sh")
        )

    def _variables(self, said: dict[str, str], where: str) -> dict[str, str]:
        """Return variables with their defaults; those of this host are not handed on."""

        def value(found: re.Match[str]) -> str:
            if found[2] is None:
                raise _Unsupported(
                    f"{where}: ${{{found[1]}}} is a variable of this host, and none is handed to a sandbox"
                )
            return found[2]

        return {name: HOST_VARIABLE.sub(value, text) for name, text in said.items()}

    def _reach(self, said: toml.Network) -> Reach | None:
        try:
            return reach_of(said, without_internet=self._config.without_internet)
        except BadTaskset as error:
            raise _Unsupported(str(error)) from error

    def _in_time(self, seconds: float) -> float:
        return min(seconds * self._gym.defaults.timeout_multiplier, 7 * 24 * 3600.0)


def _not_made(where: str, said: Environment) -> Iterator[str]:
    """Yield why no machine is made as a table says."""
    if said.os.lower() != "linux":
        yield f"{where}.os: {said.os!r}: sandboxes are Linux"
    if said.gpus or said.tpu:
        yield f"{where}: sandboxes have no graphics or tensor processors"
    if said.healthcheck:
        yield f"{where}.healthcheck: what an image starts by itself is not started here, so there is nothing to wait for"


def _script(path: str) -> str:
    """Return how a script is run: by bash where there is one, as most are written for it."""
    return f"if command -v bash >/dev/null 2>&1; then exec bash {path}; else exec /bin/sh {path}; fi"


def _packed(contents: dict[str, bytes]) -> dict[str, str]:
    return {path: base64.b64encode(content).decode() for path, content in contents.items()}
