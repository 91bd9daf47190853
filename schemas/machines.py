"""What a task asks of the machines that it is done and graded in, and how a run's own sandbox becomes one of those."""

from __future__ import annotations

from typing import Final

from pydantic import Field, ValidationError

from schemas.base import Frozen
from schemas.sandboxes import Bubblewrap, Docker, Layout, Reach, SandboxConfig
from schemas.values import Seconds

ROOM: Final = {"memory_mib": 2048, "processes": 512, "file_mib": 1024, "cpu_s": 3600}
"""What a machine that a task describes has at least where the task says nothing: there the limits are the task's, not a command's."""


USER: Final = r"^([1-9]\d{0,9}|[a-z_][a-z0-9_-]{0,31})$"


class Unfit(ValueError):
    """A run's sandbox cannot be what a task asks of its machine."""


class Machine(Frozen):
    """What a task asks of a machine; what is None is the run's own.

    `user` is a number, or a name that its image knows. `agent` and `verify` are what is reached while the agent works, and while it is
    graded.
    """

    image: str | None = Field(default=None, min_length=1)
    dockerfile: str | None = Field(default=None, min_length=1)
    image_timeout_s: Seconds | None = None
    layout: Layout = Layout()
    cpus: float | None = Field(default=None, gt=0)
    memory_mib: int | None = Field(default=None, ge=8)
    user: str | None = Field(default=None, pattern=USER)
    agent: Reach | None = None
    verify: Reach | None = None

    @property
    def is_of_an_image(self) -> bool:
        """Say whether it is made of an image of the task's own."""
        return self.image is not None or self.dockerfile is not None


def fitted(sandbox: SandboxConfig, machine: Machine | None) -> SandboxConfig:
    """Return the sandbox as a task asks for it, which is one that can be written down and read again; raises `Unfit`.

    Bubblewrap is made of no image: for a task with one of its own a container takes its place, with the same limits and lists of hosts.
    """
    if machine is None:
        return sandbox
    if not isinstance(sandbox, Bubblewrap | Docker):
        msg = f"a task that describes its machine runs in bubblewrap or docker, not in a sandbox of type {sandbox.type}"
        raise Unfit(msg)
    made = _container(sandbox, machine) if machine.is_of_an_image else sandbox
    limits: dict[str, float | None] = {name: max(getattr(made.limits, name), least) for name, least in ROOM.items()}
    wanted = {"memory_mib": machine.memory_mib, "cpus": machine.cpus}
    limits.update({name: value for name, value in wanted.items() if value is not None})
    reach = {"agent": machine.agent, "verify": machine.verify}
    network = made.network.replaced(**{phase: hosts for phase, hosts in reach.items() if hosts is not None})
    changes = {"limits": made.limits.replaced(**limits), "network": network, "layout": machine.layout}
    made = made.model_copy(update=changes)
    if machine.user is None:
        return _checked(made)
    if not isinstance(made, Docker):
        msg = f"the task's user is {machine.user}, and bubblewrap has one user of its own: choose sandbox.type=docker"
        raise Unfit(msg)
    is_number = machine.user.isdecimal()
    return _checked(made.replaced(user=f"{machine.user}:{machine.user}" if is_number else machine.user))


def _checked(made: Bubblewrap | Docker) -> SandboxConfig:
    try:
        return type(made).model_validate(made.model_dump())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        msg = (
            f"the task asks for a sandbox that there is none of: {where}: {first['msg'].removeprefix('Value error, ')}"
        )
        raise Unfit(msg) from error


def _container(sandbox: Bubblewrap | Docker, machine: Machine) -> Docker:
    if not isinstance(sandbox, Docker):
        sandbox = Docker(
            image=machine.image,
            dockerfile=machine.dockerfile,
            limits=sandbox.limits,
            network=sandbox.network,
            shared=sandbox.shared,
            ledger_path=sandbox.ledger_path,
        )
    within_s = machine.image_timeout_s or sandbox.image_timeout_s
    return sandbox.replaced(image=machine.image, dockerfile=machine.dockerfile, image_timeout_s=within_s)
