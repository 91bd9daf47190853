"""Sandboxes of Enroot: a root file system out of a squashfs image.

Enroot gives a box its own mounts and user, but shares the host's processes and network: unshare(1) gives it its own of those as well.
The box's user is whoever runs gym-bus. Written against the documented command line of Enroot 3 and tested with a stand-in for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from providers.sandboxes.base import CreateFailed, SandboxUnavailable
from providers.sandboxes.bubblewrap_argv import PIPES_IN_BOX
from providers.sandboxes.keeper import MARK
from providers.sandboxes.rooms import Room
from providers.sandboxes.runtime_provider import SHELL, RuntimeProvider, host_environment, program, run_once
from schemas.sandboxes import Enroot

ADVICE: Final = "Install Enroot, or set sandbox.binary to where it is"
UNSHARE_ADVICE: Final = "Install util-linux"
PLACES: Final = {"DATA": "data", "RUNTIME": "run", "CACHE": "cache", "TEMP": "tmp"}
RC: Final = "rc"
SHARED: Final = "shared"
"""The name of the container that all boxes of a process read from, if none may write to it."""


class EnrootRuntime:
    """How Enroot is told to make a box."""

    def __init__(self, config: Enroot) -> None:
        self._config = config
        self._one_at_a_time = asyncio.Lock()

    @property
    def name(self) -> str:
        """Return the configuration's type."""
        return "enroot"

    @property
    def bounds_memory(self) -> bool:
        """Say that Enroot bounds nothing."""
        return False

    async def prepare(self, room: Room, state: Path) -> None:
        """Unpack the image: once for each box if it may be written to, else once for all; raises `CreateFailed`."""
        binary = program(self._config.binary, ADVICE)
        if not Path(self._config.image).is_file():  # noqa: ASYNC240  once per box
            raise SandboxUnavailable(
                f"there is no image at {self._config.image}: `enroot import -o {self._config.image} docker://…` makes one"
            )
        await asyncio.to_thread(_lay_out, state)
        name = self._container(room)
        async with self._one_at_a_time:
            if not (state / PLACES["DATA"] / name).exists():
                await run_once([binary, "create", "--name", name, self._config.image], self._own(state))

    def command(self, room: Room, state: Path) -> list[str]:
        """Return the arguments that become a box: each program becomes the next, the last is the first process of its namespace."""
        tmp = f"x-create=dir,nosuid,nodev,mode=1777,size={self._config.limits.memory_mib}m"
        return [
            program("unshare", UNSHARE_ADVICE), "--user", "--map-current-user",
            *(["--net"] if self._config.network == "none" else []),
            "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
            program(self._config.binary, ADVICE), "start", "--rc", str(state / RC),
            *(["--rw"] if self._config.writable else []),
            "--mount", f"{room.work}:/box:none:x-create=dir,bind",
            "--mount", f"{room.pipes}:{PIPES_IN_BOX}:none:x-create=dir,bind,ro",
            "--mount", f"tmpfs:/tmp:tmpfs:{tmp}", "--env", MARK,
            self._container(room), SHELL, "-c", f"cd /box && exec {SHELL}",
        ]  # fmt: skip

    def environment(self, variables: Mapping[str, str], state: Path) -> dict[str, str]:  # noqa: ARG002
        """Return Enroot's own environment; the box's variables are set by the shell, which is told them in secret."""
        return self._own(state)

    def exported(self, variables: Mapping[str, str]) -> Mapping[str, str]:
        """Return what the shell has to set: all."""
        return variables

    async def clear(self, room: Room, state: Path) -> None:
        """Remove the container of a box that had its own."""
        if self._config.writable:
            with suppress(CreateFailed, SandboxUnavailable):
                binary = program(self._config.binary, ADVICE)
                await run_once([binary, "remove", "--force", self._container(room)], self._own(state))

    def _container(self, room: Room) -> str:
        return room.path.name if self._config.writable else SHARED

    def _own(self, state: Path) -> dict[str, str]:
        return host_environment() | {f"ENROOT_{name}_PATH": str(state / place) for name, place in PLACES.items()}


def _lay_out(state: Path) -> None:
    """Make the directories that Enroot keeps things in, and what it starts instead of the image's own script. Blocking."""
    for path in (state, *(state / name for name in PLACES.values())):
        path.mkdir(mode=0o700, exist_ok=True)
    (state / RC).write_text('exec "$@"\n')


class EnrootProvider(RuntimeProvider):
    """Makes boxes with Enroot, their files under `work_dir`."""

    def __init__(self, config: Enroot, work_dir: Path) -> None:
        super().__init__(EnrootRuntime(config), config.limits, config.environment, config.ledger_path, work_dir)
