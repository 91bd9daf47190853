"""What a sandbox is to the rest of gym-bus: made by label, driven by commands, destroyed.

A provider's handles stay inside the sandbox actor. `label` is the aggregate's key (`<run>.<rollout>.<key>`), so that a machine is
always findable and none is made twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from gym_bus.errors import GymBusError, Permanent

Capability = Literal["files", "snapshots", "way_out", "egress", "detached", "terminal", "pause", "users", "ports"]
"""What some machines can do and others cannot; see `providers.sandboxes.capabilities`."""


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What came of a command; see `ToolCallCompleted` for the fields."""

    exit_code: int | None
    output: str
    output_bytes: int
    truncated: bool
    ended_by: Literal["exit", "signal", "timeout", "out_of_memory"]
    duration_s: float


class SandboxUnavailable(Permanent):
    """This provider cannot work on this machine; the message says what to install."""


class CreateFailed(GymBusError):
    """This one machine could not be made."""


class BoxLost(GymBusError):
    """The machine is gone; what a running command did is unknown."""


class BoxReplaced(BoxLost):
    """Another machine answers in the name of this one: it was restarted, or made anew, and is not to be trusted."""


class Box(Protocol):
    """One machine. Commands run one after the other in the order of their calls."""

    @property
    def is_alive(self) -> bool:
        """Say whether commands can still run."""
        ...

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command` with `/bin/sh -c`; end its whole process tree after `timeout_s`.

        `key` (the request's event id) goes to the ledger before the process starts. Raises `BoxLost` if the machine dies.
        A command that fails, is missing (127), is killed by a signal or times out is a result, not an error.
        """
        ...

    async def destroy(self) -> None:
        """End everything in the machine and remove its files; safe to repeat."""
        ...


class SandboxProvider(Protocol):
    """A way to make machines. One instance serves one configuration in a process."""

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        ...

    async def check(self) -> None:
        """Raise `SandboxUnavailable` if no machine can be made here."""
        ...

    async def create(self, label: str) -> Box:
        """Make the machine `label`; raises `CreateFailed`."""
        ...

    async def reap(self) -> int:
        """Destroy what earlier processes of this host left behind; return how many machines."""
        ...

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        ...
