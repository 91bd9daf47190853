"""What is asked of a maker of machines: six verbs for machines, four for one of them; and how it says no."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from gym_bus.errors import GymBusError, Permanent
from providers.sandboxes.base import BoxLost, CreateFailed, SandboxUnavailable

Refusal = Literal["unreachable", "unauthorised", "busy", "failed", "gone", "refused"]
"""There is no way to it; it does not know us; it has no time; what came of the call is unknown; the machine is no more; it will not."""


class CloudRefused(GymBusError):
    """The maker did not do what was asked of it: `kind` says why."""

    def __init__(self, kind: Refusal, message: str) -> None:
        super().__init__(message)
        self.kind: Refusal = kind

    def at_creation(self) -> GymBusError:
        """Return what this means for somebody who wants a machine."""
        match self.kind:
            case "unreachable":
                return SandboxUnavailable(f"{self}. Is its address right, and does it run?")
            case "unauthorised":
                return SandboxUnavailable(f"{self}. Check sandbox.api_key")
            case _:
                return CreateFailed(str(self))

    def in_box(self, label: str) -> GymBusError:
        """Return what this means for somebody who uses the machine `label`."""
        return Permanent(f"sandbox {label}: {self}") if self.kind == "refused" else BoxLost(f"sandbox {label}: {self}")


@dataclass(frozen=True, slots=True)
class Found:
    """A machine that was looked for: what it is known by, and what was written on it when it was made."""

    id: str
    metadata: Mapping[str, str]


class Machine(Protocol):
    """One machine, as its maker's client lets us drive it. Every verb raises `CloudRefused`."""

    @property
    def is_exact(self) -> bool:
        """Say whether bytes come through as they are; otherwise `run` carries lines of text only."""
        ...

    @property
    def is_streamed(self) -> bool:
        """Say whether `run` hands over what is printed while the command runs; otherwise a deadline counts from the call on."""
        ...

    @property
    def id(self) -> str:
        """Return the name that its maker gave it, which no other machine ever has."""
        ...

    async def run(
        self, command: str, hear: Callable[[bytes], bool], *, user: str | None, timeout_s: float
    ) -> int | None:
        """Run `command` with a shell; hand over what it prints until `hear` says that it is enough, or it ends.

        `user` None is the machine's own. Return the exit code, None if it was not waited for. That `timeout_s` are over
        is `failed`: callers have their own, shorter deadline.
        """
        ...

    async def upload(self, source: Path, path: str) -> None:
        """Write a file of this host to the machine's new file `path`, which its commands may read."""
        ...

    def download(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of the machine's file `path`."""
        ...

    async def renew(self, lifetime_s: int) -> None:
        """Let the machine live for `lifetime_s` from now on; safe to repeat."""
        ...


M_co = TypeVar("M_co", bound=Machine, covariant=True)


class Cloud(Protocol[M_co]):
    """A maker of machines. Every verb raises `CloudRefused`; finding and removing may be repeated."""

    async def check(self) -> None:
        """Find out whether the maker answers, and takes the key."""
        ...

    async def prepare(self) -> None:
        """Have what machines are made of; long the first time, nothing afterwards."""
        ...

    async def make(self, metadata: Mapping[str, str], lifetime_s: int) -> M_co:
        """Make one machine with `metadata` written on it. Never repeated: what was not answered may have been made."""
        ...

    async def find(self, metadata: Mapping[str, str]) -> Sequence[Found]:
        """Return the machines, running or not, that have all of `metadata`."""
        ...

    async def remove(self, machine_id: str) -> bool:
        """End a machine; return whether there was one."""
        ...

    async def aclose(self) -> None:
        """Give connections back."""
        ...
