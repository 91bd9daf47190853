"""What a run may say of its sandboxes: of each kind, what they bound, what they may reach, and how their files are kept."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from schemas.addresses import alone
from schemas.base import Frozen, Tagged
from schemas.network import parse_hosts
from schemas.values import Seconds

WORKSPACE: Final = "/box"
"""Where the files of a sandbox on this host are, whatever else they are called."""


MEMORY_MAX_MIB: Final = 64 * 1024 * 1024
"""64 TiB: more than any host has, and little enough to be counted in bytes."""


class SandboxLimits(Frozen):
    """What one sandbox may use. Of what a detached job prints the first `job_output_mib` are kept.

    Containers of Docker use no more than `cpus` processors. A host that was told how much it has (`GYM_BUS_BOX_CPUS`,
    `GYM_BUS_BOX_MEMORY_MIB`) holds no more sandboxes than that is enough for. `file_mib` bounds each file that commands write,
    `disk_mib` all files of the workspace together: it is a file system in memory then, beside `memory_mib`, for which gym-bus has
    to be root.
    """

    memory_mib: int = Field(default=512, ge=16, le=MEMORY_MAX_MIB)
    cpus: float | None = Field(default=None, gt=0, le=1024)
    processes: int = Field(default=64, ge=4)
    file_mib: int = Field(default=64, ge=1)
    disk_mib: int | None = Field(default=None, ge=1)
    cpu_s: int = Field(default=60, ge=1)
    output_bytes: int = Field(default=32_768, ge=256, le=1_048_576)
    job_output_mib: int = Field(default=16, ge=1, le=1024)


class Reach(Frozen):
    """The hosts that a sandbox may reach: `name` (port 443), `name:port`, `*.name`; see `schemas.network`."""

    allow: tuple[str, ...] = Field(default=(), max_length=256)

    @field_validator("allow")
    @classmethod
    def _are_names(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        parse_hosts(allow)
        return allow


class NetworkPolicy(Frozen):
    """What a sandbox may reach in each phase of a rollout: while it is made ready, while the agent works, while it is graded.

    By default nothing. Names lead to public addresses only; those in `private` (written as in the lists) may lead to this machine
    and its neighbours as well. Addresses and ranges of them cannot be allowed.
    """

    install: Reach = Reach()
    agent: Reach = Reach()
    verify: Reach = Reach()
    private: tuple[str, ...] = Field(default=(), max_length=256)

    @field_validator("private")
    @classmethod
    def _are_names(cls, private: tuple[str, ...]) -> tuple[str, ...]:
        parse_hosts(private)
        return private


class SharedDirectory(Frozen):
    """The host's directory `source`, which a sandbox sees at `at`, below /opt, and cannot write to.

    It is shown only if it holds a file `.gym-bus-shared`: whoever owns it says so that nothing in there is secret.
    """

    source: str = Field(pattern="^/", max_length=4096)
    at: str = Field(pattern=r"^/opt(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+$", max_length=256)


def _apart(directories: tuple[SharedDirectory, ...]) -> tuple[SharedDirectory, ...]:
    """Refuse two directories at one place, and one inside of another."""
    places = sorted(f"{one.at}/" for one in directories)
    for one, following in itertools.pairwise(places):
        if following.startswith(one):
            msg = f"shared directories must lie apart: {one} and {following}"
            raise ValueError(msg)
    return directories


SharedDirectories = Annotated[tuple[SharedDirectory, ...], Field(max_length=16), AfterValidator(_apart)]


VARIABLES_MAX_BYTES: Final = 65_536
"""Names and values together: a program's arguments and variables have a bound in the kernel."""


def _fit_to_be_set(variables: dict[str, str]) -> dict[str, str]:
    if name := next((name for name, value in variables.items() if "\0" in value), None):
        msg = f"the variable {name} holds a NUL, which no variable can"
        raise ValueError(msg)
    if (
        sum(len(name.encode()) + len(value.encode(errors="replace")) for name, value in variables.items())
        > VARIABLES_MAX_BYTES
    ):
        msg = f"variables are longer than {VARIABLES_MAX_BYTES:,} bytes together"
        raise ValueError(msg)
    return variables


Variables = Annotated[
    dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str], AfterValidator(_fit_to_be_set)
]

OF_THE_SYSTEM: Final = (
    "bin",
    "boot",
    "box",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
)
"""Directories at the top of a machine that no task may have for itself, nor anything in them."""


def _of_its_own(path: str) -> str:
    """Refuse a directory that is the system's, or that programs of agents are shown in."""
    first = path.split("/")[1]
    is_ours = path in {"/tmp", "/opt"} or path == "/opt/gym-bus" or path.startswith("/opt/gym-bus/")  # noqa: S108  in the machine
    if first in OF_THE_SYSTEM or is_ours or {".", ".."} & set(path.split("/")):
        msg = f"{path} cannot be a directory of a task's own: it is the system's"
        raise ValueError(msg)
    return path


OwnDirectory = Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+)+$", max_length=256), AfterValidator(_of_its_own)]


class Layout(Frozen):
    """What a task finds in its machine beside the usual.

    The box's files are at `workspace` as well as at /box, and commands begin there; None is /box alone. With `is_seeded` they begin as
    what the image has there. `scratch` are directories of memory that commands can write to, and that no checkpoint holds.
    `environment` is what commands find besides the usual.
    """

    workspace: OwnDirectory | None = None
    is_seeded: bool = False
    scratch: tuple[OwnDirectory, ...] = Field(default=(), max_length=16)
    environment: Variables = Field(default_factory=dict)

    @model_validator(mode="after")
    def _lie_apart(self) -> Self:
        """A workspace in a place of ours, or around one, would be emptied or graded with what is in there."""
        workspace = f"{self.workspace}/"
        for place in self.scratch:
            if self.workspace and (f"{place}/".startswith(workspace) or workspace.startswith(f"{place}/")):
                msg = f"{self.workspace} cannot be the workspace: {place} is another place of the machine"
                raise ValueError(msg)
        return self


class Bubblewrap(Tagged):
    """A sandbox of namespaces: no network but what `network` allows, read-only system, no capabilities, a non-root user."""

    type: Literal["bubblewrap"] = "bubblewrap"
    limits: SandboxLimits = SandboxLimits()
    network: NetworkPolicy = NetworkPolicy()
    shared: SharedDirectories = ()
    layout: Layout = Layout()
    ledger_path: str | None = None


class UnsafeLocal(Tagged):
    """Bare processes on this machine, with this user's rights. Never chosen by default."""

    type: Literal["unsafe_local"] = "unsafe_local"
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


class Inline(Tagged):
    """No machine at all: the actor itself works out `echo $((…))`. For benchmarks and unit tests."""

    type: Literal["inline"] = "inline"
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


class Docker(Tagged):
    """A container of Docker, or of podman behind its Docker-compatible socket: no network, read-only, no capabilities, not root.

    The engine has to run on this host; any image with `/bin/sh` will do. `image` is pulled if it is not there, unless `pull` is
    `never`. In its place may be a `dockerfile`, of which, with the directory it is in, an image is built, with the network
    `build_network`. Either may take `image_timeout_s`. `user` is uid:gid, numbers, or a name that the image knows for a user who is
    not root; it must be gym-bus's own if that does not run as root. `socket` is the engine's: None is `DOCKER_HOST` if that is a unix
    socket, else Docker's own place. `limits.memory_mib` and `limits.processes` bound the container as a whole.
    """

    type: Literal["docker"] = "docker"
    image: str | None = Field(default=None, min_length=1)
    dockerfile: str | None = Field(default=None, min_length=1)
    pull: Literal["missing", "never"] = "missing"
    build_network: Literal["default", "host", "none"] = "default"
    image_timeout_s: Seconds = 1800
    limits: SandboxLimits = SandboxLimits()
    network: NetworkPolicy = NetworkPolicy()
    shared: SharedDirectories = ()
    layout: Layout = Layout()
    user: str = Field(default="1000:1000", pattern=r"^([1-9]\d{0,9}:\d{1,10}|[a-z_][a-z0-9_-]{0,31})$")
    socket: str | None = None
    ledger_path: str | None = None

    @model_validator(mode="after")
    def _is_made_of_something(self) -> Self:
        if (self.image is None) == (self.dockerfile is None):
            msg = "either image has to be set, or dockerfile"
            raise ValueError(msg)
        return self


class Apptainer(Tagged):
    """A container of Apptainer: contained, without the host's home and environment, and without a network unless `network` is `host`.

    `image` is a `.sif` file or a directory with `/bin/sh` in it, `binary` the program's name or path. `environment` is what commands
    find besides the usual; it is in no process's arguments. With `cgroups` memory and processes are bounded by Apptainer for the box as
    a whole, which needs version 2 and, without root, delegation; else memory process by process, and processes not at all.
    """

    type: Literal["apptainer"] = "apptainer"
    image: str = Field(min_length=1)
    binary: str = "apptainer"
    network: Literal["none", "host"] = "none"
    writable_tmpfs: bool = True
    cgroups: bool = False
    environment: Variables = Field(default_factory=dict)
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


class Enroot(Tagged):
    """A container of Enroot, in namespaces of its own: no network unless `network` is `host`; read-only unless it is `writable`.

    `image` is a squashfs file with `/bin/sh` in it, `binary` the program's name or path. `environment` is as for Apptainer. Memory is
    bounded process by process, processes are not.
    """

    type: Literal["enroot"] = "enroot"
    image: str = Field(min_length=1)
    binary: str = "enroot"
    network: Literal["none", "host"] = "none"
    writable: bool = False
    environment: Variables = Field(default_factory=dict)
    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


Address = Annotated[str, AfterValidator(partial(alone, instead="give a key as api_key"))]


class RemoteSandbox(Tagged):
    """A machine at somebody else's. `api_key` is a secret's name, never the key itself.

    A machine ends by itself `lifetime_s` after it was last renewed, which happens while its owner lives, for `max_age_s` at most.
    Commands begin in `workspace`. `user` is who they run as: None is the image's own. Memory, processors and processes are bounded by
    what the machine is made of; of `limits`, files, processor time and output count. With `allow_hosts` it reaches those hosts only,
    with an empty list nothing; None leaves it whatever the maker does.
    """

    api_key: str | None = None
    workspace: str = Field(default="/box", pattern=r"^(/[A-Za-z0-9_.-]+)+$")
    lifetime_s: int = Field(default=600, ge=5, le=86_400)
    max_age_s: Seconds = 86_400
    request_timeout_s: Seconds = 30
    create_timeout_s: Seconds = 180
    allow_hosts: tuple[str, ...] | None = ()

    @property
    def reaches_out(self) -> bool:
        """Say whether commands can have an effect outside of the machine."""
        return self.allow_hosts != ()

    limits: SandboxLimits = SandboxLimits()
    ledger_path: str | None = None


class E2B(RemoteSandbox):
    """A microVM of E2B, made of `template`; with `dockerfile`, the template is built of that file under this name if there is none yet.

    `domain` is that of an installation of one's own; `api_url` and `sandbox_url` name its two doors where they do not follow from it.
    """

    type: Literal["e2b"] = "e2b"
    template: str = Field(default="base", min_length=1)
    dockerfile: str | None = None
    domain: Address | None = None
    api_url: Address | None = None
    sandbox_url: Address | None = None
    user: str = Field(default="user", pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")
    build_timeout_s: Seconds = 1800


class OpenSandbox(RemoteSandbox):
    """A container of an OpenSandbox server at `domain` (`host:port`), made of `image`.

    `resource_limits` and `resource_requests` are in the server's words (`cpu`, `memory`). `use_server_proxy` leads all calls
    through the server, where containers cannot be reached themselves. `team`, `user` and `workload` are written on machines, for
    whoever shares the server.
    """

    type: Literal["opensandbox"] = "opensandbox"
    image: str = Field(min_length=1)
    domain: Address = "localhost:8080"
    protocol: Literal["http", "https"] = "http"
    use_server_proxy: bool = False
    resource_limits: dict[str, str] = Field(default_factory=lambda: {"cpu": "1", "memory": "2Gi"})
    resource_requests: dict[str, str] = Field(default_factory=dict)
    team: str | None = None
    user: str | None = None
    workload: str | None = None

    @property
    def labels(self) -> dict[str, str]:
        """Return what is written on machines beside what finds them."""
        named = {"team": self.team, "user": self.user, "workload": self.workload}
        return {name: value for name, value in named.items() if value}


class Daytona(RemoteSandbox):
    """A machine of Daytona, made of `snapshot` (None: Daytona's own) in `target`, with so many processors and GiB.

    It is deleted when it stops, and stops when it was not used for `lifetime_s`, rounded up to minutes. `user` is who commands run as;
    they must be able to make `workspace`.
    """

    type: Literal["daytona"] = "daytona"
    api_url: Address = "https://app.daytona.io/api"
    workspace: str = Field(default="/tmp/box", pattern=r"^(/[A-Za-z0-9_.-]+)+$")  # noqa: S108  in the machine
    snapshot: str | None = None
    target: str | None = None
    user: str | None = None
    cpu: int | None = Field(default=None, ge=1)
    memory_gib: int | None = Field(default=None, ge=1)
    disk_gib: int | None = Field(default=None, ge=1)


SandboxConfig = Annotated[
    Bubblewrap | Docker | Apptainer | Enroot | UnsafeLocal | Inline | E2B | OpenSandbox | Daytona,
    Field(discriminator="type"),
]


WarmSandboxes = Annotated[int, Field(ge=0, le=64)]
"""How many machines of a run each host keeps ready, beside those in use."""


class NoImage(ValueError):
    """A task names an image, and the sandbox is of a type that is made of none."""


def workspace_of(sandbox: SandboxConfig) -> str:
    """Return where commands of a sandbox on this host begin."""
    layout = getattr(sandbox, "layout", None)
    return layout.workspace or WORKSPACE if isinstance(layout, Layout) else WORKSPACE


def variables_of(sandbox: SandboxConfig) -> dict[str, str]:
    """Return what commands of a sandbox find in their environment besides the usual, as its task says."""
    layout = getattr(sandbox, "layout", None)
    return dict(layout.environment) if isinstance(layout, Layout) else {}


def with_image(sandbox: SandboxConfig, image: str | None) -> SandboxConfig:
    """Return the sandbox, made of a task's own `image` if it has one; raises `NoImage`."""
    match sandbox:
        case _ if image is None:
            return sandbox
        case Docker():
            return sandbox.replaced(image=image, dockerfile=None)
        case Apptainer() | Enroot() | OpenSandbox():
            return sandbox.replaced(image=image)
        case _:
            msg = f"a task names the image {image}, and a sandbox of type {sandbox.type} is made of none"
            raise NoImage(msg)


class Checkpoints(Frozen):
    """When the files of a sandbox are kept, and how often a session may go on with them in a new sandbox.

    `turn` is after the last command of each of the model's turns, where the provider's machines have snapshots. A sandbox that is lost
    is made again, at most `max_restores` times a session, with `restore_in` if that is given. Files are kept, never processes.
    """

    when: Literal["turn", "never"] = "turn"
    max_restores: int = Field(default=3, ge=0, le=100)
    restore_in: SandboxConfig | None = None


def workspace_begins(sandbox: SandboxConfig) -> bool:
    """Say whether a new sandbox has files in its workspace already."""
    layout = getattr(sandbox, "layout", None)
    return isinstance(layout, Layout) and layout.is_seeded and isinstance(sandbox, Docker)
