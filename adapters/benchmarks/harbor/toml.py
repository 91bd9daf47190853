"""What `task.toml` and `dataset.toml` say, as models: a key that nobody here knows is noted, a value that cannot be is an error."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from adapters.benchmarks.harbor.files import text_of
from gym_bus.errors import BadTaskset
from schemas.sandboxes import Variables
from schemas.tasks import MCP_SERVERS_MAX

NEAR: Final = 0.7
TOML_MAX_BYTES: Final = 256 * 1024
DIGITS: Final = re.compile(r"[0-9]{1,100}")
SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])I?B?", re.IGNORECASE)
MIB_OF: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}


def _as_one_number(value: Any) -> Any:
    """Return a number in the one way in which it is compared: 0 has many."""
    if type(value) is int:
        return str(value)
    return str(int(value)) if isinstance(value, str) and DIGITS.fullmatch(value) else value


User = Annotated[
    str,
    BeforeValidator(_as_one_number),
    Field(pattern=r"^(\d{1,10}|[a-z_][a-z0-9_-]{0,31})$"),
]
Timeout = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]


class _Table(BaseModel):
    """A table whose unknown keys are kept, so that they can be noted."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)


class Network(_Table):
    """What is reached: nothing, anything, or a list of hosts."""

    network_mode: Literal["no-network", "public", "allowlist"] | None = None
    allowed_hosts: tuple[str, ...] | None = None
    allow_internet: bool | None = None


class Server(_Table):
    """A server of tools."""

    name: str = Field(min_length=1)
    transport: Literal["stdio", "sse", "streamable-http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    headers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _calls_http_by_one_name(cls, data: Any) -> Any:
        return (
            {**data, "transport": "streamable-http"}
            if isinstance(data, dict) and data.get("transport") == "http"
            else data
        )

    @model_validator(mode="after")
    def _has_an_address(self) -> Server:
        needed = "command" if self.transport == "stdio" else "url"
        if getattr(self, needed) is None:
            msg = f"a server of transport {self.transport!r} needs {needed!r}"
            raise ValueError(msg)
        return self


class Environment(Network):
    """What a machine is made of, and what it has."""

    docker_image: str | None = Field(default=None, min_length=1)
    build_timeout_sec: Timeout = 600.0
    os: str = "linux"
    cpus: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, ge=8)
    storage_mb: int | None = Field(default=None, ge=1)
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    tpu: dict[str, Any] | None = None
    env: Variables = Field(default_factory=dict)
    mcp_servers: tuple[Server, ...] = Field(default=(), max_length=MCP_SERVERS_MAX)
    skills_dir: str | None = Field(default=None, pattern=r"^(/[A-Za-z0-9_.-]+)+/?$")
    healthcheck: dict[str, Any] | None = None
    workdir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _reads_older_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        named = {"memory": "memory_mb", "storage": "storage_mb"}
        sizes = {named[key]: _mib(value) for key, value in data.items() if key in named}
        older = {"docker_image": data["image"]} if "image" in data else {}
        return {**older, **sizes, **{key: value for key, value in data.items() if key not in {*named, "image"}}}


def _mib(text: Any) -> int:
    found = SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if not found:
        msg = f"{text!r} is no size: want one such as '2G'"
        raise ValueError(msg)
    return int(float(found[1]) * MIB_OF[found[2].upper()])


class Agent(Network):
    """How long the agent has, and who it is."""

    timeout_sec: Timeout | None = None
    user: User | None = None


class Verifier(Network):
    """How a task is graded."""

    timeout_sec: Timeout = 600.0
    env: Variables = Field(default_factory=dict)
    user: User | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: Environment | None = None
    collect: tuple[dict[str, Any], ...] = ()

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Verifier:
        if self.environment_mode == "shared" and self.environment is not None:
            msg = "environment_mode = 'shared' leaves no room for an environment of its own"
            raise ValueError(msg)
        return self

    @property
    def is_separate(self) -> bool:
        """Say whether the tests get nothing but artifacts."""
        return self.environment_mode == "separate" or self.environment is not None


class Artifact(_Table):
    """A file or directory that is handed to the tests."""

    source: str = Field(min_length=1)
    destination: str | None = None
    exclude: tuple[str, ...] = ()
    service: str | None = None


def _as_table(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


class SolutionTable(_Table):
    """How the solution is run."""

    env: Variables = Field(default_factory=dict)


class TaskToml(_Table):
    """`task.toml`."""

    schema_version: str = "1.4"
    version: Any = None
    task: dict[str, Any] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    source: str | None = None
    environment: Environment = Environment()
    agent: Agent = Agent()
    verifier: Verifier = Verifier()
    solution: SolutionTable = SolutionTable()
    artifacts: tuple[Annotated[Artifact, BeforeValidator(_as_table)], ...] = ()
    steps: tuple[dict[str, Any], ...] = ()
    multi_step_reward_strategy: str | None = None


class Defaults(_Table):
    """What holds for all tasks of a dataset."""

    timeout_multiplier: float = Field(default=1.0, gt=0, le=1000)
    resource_multiplier: float = Field(default=1.0, gt=0, le=1000)


class Gym(_Table):
    """The table `[gym]` of a dataset; `tasks` are keys of `[environment]` by the task's name."""

    defaults: Defaults = Defaults()
    tasks: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    allowed_agents: tuple[str, ...] = ()
    license: Any = None
    type: Any = None
    domain: Any = None
    verified: Any = None
    source: Any = None


class DatasetToml(_Table):
    """`dataset.toml`, of which the table `[gym]` is read."""

    gym: Gym = Gym()


TableT = TypeVar("TableT", bound=_Table)


def parsed(path: Path) -> dict[str, Any]:
    """Return a TOML file's values; raises `BadTaskset`."""
    try:
        return tomllib.loads(text_of(path, TOML_MAX_BYTES))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadTaskset(f"{path}: {error}") from error


def read(model: type[TableT], path: Path, values: Mapping[str, Any]) -> TableT:
    """Return what the values of a file mean; raises `BadTaskset` that names file and key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [f"{path}: {_where(one['loc'])}: {one['msg'].removeprefix('Value error, ')}" for one in error.errors()]
        raise BadTaskset("\n".join(lines[:5])) from error


def unknown_in(table: _Table, above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the keys that nobody here knows, with dots, and what is said of each."""
    for key in table.model_extra or {}:
        name = f"{above}{key}"
        yield name, f"unknown key {name!r}, which is passed over{meant_by(key, type(table), above)}"
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, _Table):
            yield from unknown_in(value, f"{above}{name}.")
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, _Table):
                    yield from unknown_in(item, f"{above}{name}.")


def meant_by(key: str, table: type[_Table], above: str = "") -> str:
    """Return which key of a table was perhaps meant, or in which other table of the file it stands; nothing if that is not known."""
    if near := difflib.get_close_matches(key, table.model_fields, n=1, cutoff=NEAR):
        return f"; did you mean {above + near[0]!r}?"
    of_file = TaskToml.model_fields
    inside = {
        name: type(field.default).model_fields for name, field in of_file.items() if isinstance(field.default, _Table)
    }
    places = [f"{name}.{key}" for name, keys in inside.items() if key in keys] + [key] * (key in of_file)
    return f"; did you mean {' or '.join(map(repr, places))}?" if places and above != "gym." else ""


def _where(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place)) or "the file"
