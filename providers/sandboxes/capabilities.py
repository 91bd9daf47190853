"""What some machines can do and others cannot: one Protocol for each capability, and the names by which providers declare them.

A provider's `capabilities` are what all of its machines can do; a machine has the methods of those capabilities and of no others. So a
caller asks the provider before there is a machine, and says what is missing instead of failing in the middle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent
from providers.sandboxes.base import ExecResult
from providers.sandboxes.snapshots import Taken
from schemas.snapshots import Manifest
from schemas.values import BlobRef


class NoSuchFile(Permanent):
    """The file that was asked of a machine is not there, or is no regular file."""


@runtime_checkable
class WithFiles(Protocol):
    """`files`: single files go in and out, whatever is in them. A path that does not begin with `/` is in the workspace."""

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Make the file `path` in the machine of this host's file `source`, with the directories it is in, or replace it.

        It belongs to the user that commands run as. Raises `BoxLost`, `Permanent` if the machine refuses it.
        """
        ...

    async def get(self, path: str, target: Path, *, max_bytes: int) -> int:
        """Write the machine's regular file `path` to this host's new file `target` (mode 0600); return its size in bytes.

        Links are not followed out of the machine. Raises `NoSuchFile`, `BoxLost`, and `TooLarge` for more than `max_bytes`; nothing
        is left at `target` then.
        """
        ...


@runtime_checkable
class WithSnapshots(Protocol):
    """`snapshots`: the workspace can be kept, and made again in a machine of any provider. Files, never processes."""

    async def snapshot(self, blobs: Blobs, previous: Manifest | None = None) -> Taken:
        """Store what is in the workspace, between two commands; what `previous` holds already is not stored again.

        Raises `BoxLost`, `TooLarge`, `Retryable` if the store refuses.
        """
        ...

    async def restore(self, ref: BlobRef, blobs: Blobs) -> None:
        """Fill an empty workspace with a snapshot; raises `BoxLost`, `NotEmpty`, `Corrupt`."""
        ...


@runtime_checkable
class WithWayOut(Protocol):
    """`way_out`: a machine without a network can be given one address, a port on its own loopback, behind which is the gateway."""

    async def open_way_out(self, gateway: Path, port: int) -> str:
        """Carry connections at 127.0.0.1:`port` in the machine to the unix socket `gateway`; return the address inside.

        Raises `BoxLost`. It ends with the machine.
        """
        ...


@runtime_checkable
class WithEgress(Protocol):
    """`egress`: what a machine may reach can be said by the names of hosts, and said anew in each phase of a rollout."""

    async def allow(self, hosts: Sequence[str], phase: str = "") -> None:
        """Let the machine reach `hosts` from now on, and nothing else: `name` (port 443), `name:port`, `*.name`.

        With no hosts it reaches nothing. What it tries is written down, with the `phase` in which it does. Raises `BoxLost`,
        `Permanent` for a host that cannot be expressed.
        """
        ...


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a detached command stands: `exit_code` is None while it runs, `output_bytes` what it has written so far."""

    is_running: bool
    exit_code: int | None
    output_bytes: int


@runtime_checkable
class WithDetached(Protocol):
    """`detached`: a command runs beside others, and is asked about later."""

    async def start(self, command: str, *, key: str, timeout_s: float) -> str:
        """Start `command` and return the job's id; its process tree ends after `timeout_s`, or with the machine.

        `key` goes to the ledger before the process starts. Raises `BoxLost`.
        """
        ...

    async def status(self, job: str) -> JobStatus:
        """Return how a job stands; raises `BoxLost`, `Permanent` for an id that was never given."""
        ...

    async def output_of(self, job: str, offset: int = 0, *, max_bytes: int = 65_536) -> bytes:
        """Return what a job has written from byte `offset` on, both streams in order; empty if there is nothing more yet."""
        ...

    async def stop(self, job: str) -> None:
        """End a job's process tree; safe to repeat."""
        ...


class Terminal(Protocol):
    """An interactive command behind a pseudo-terminal."""

    async def write(self, content: bytes) -> None:
        """Type."""
        ...

    async def read(self, *, within_s: float) -> bytes:
        """Return what has been shown since the last read, as soon as there is something; empty after `within_s`, or at its end."""
        ...

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the command how large its terminal is."""
        ...

    async def close(self) -> int | None:
        """End it, with its process tree; return the exit code if it had ended by itself."""
        ...


@runtime_checkable
class WithTerminal(Protocol):
    """`terminal`: commands that want to be talked to."""

    async def terminal(self, command: str, *, key: str, rows: int = 24, columns: int = 80) -> Terminal:
        """Start `command` behind a pseudo-terminal. Raises `BoxLost`."""
        ...


@runtime_checkable
class WithPause(Protocol):
    """`pause`: everything in the machine can be stopped where it is, and go on later."""

    async def pause(self) -> None:
        """Stop everything in the machine, between two commands; safe to repeat. Raises `BoxLost`."""
        ...

    async def resume(self) -> None:
        """Let it go on; safe to repeat. Raises `BoxLost`."""
        ...


@runtime_checkable
class WithUsers(Protocol):
    """`users`: a command can run as a named user of the machine's image."""

    async def exec_as(self, user: str, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command` as `user`; else as `Box.exec`. Raises `BoxLost`, `Permanent` if there is no such user."""
        ...


@runtime_checkable
class WithPorts(Protocol):
    """`ports`: what listens in the machine can be reached from here."""

    async def address_of(self, port: int) -> str:
        """Return the URL at which this process reaches `port` in the machine. Raises `BoxLost`."""
        ...
