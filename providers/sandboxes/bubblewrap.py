"""The default sandbox: bubblewrap, with a shell standing in it.

No network, a read-only system, no capabilities, a user without rights (of its own for each box if we are root), and
only /box, /tmp and /dev/shm to write to. Namespaces are not a virtual machine: the kernel is shared with the host. What
is bounded is each process (memory, CPU time, size of a file), the number of processes, and /tmp; not the sum of a box's
memory, nor of its files in /box.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from gym_bus.blobs import Blobs
from providers.sandboxes.base import BoxLost, Capability, CreateFailed, ExecResult, SandboxUnavailable
from providers.sandboxes.bubblewrap_argv import ENVIRONMENT, Tools, argv
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.processes import refusal
from providers.sandboxes.rooms import Room, Rooms, reachable_parent
from providers.sandboxes.snapshots import Taken, restore, take
from providers.sandboxes.standing_shell import StandingShell
from providers.sandboxes.way_out import PORT, WayOut
from schemas.config import Bubblewrap
from schemas.snapshots import Manifest
from schemas.values import BlobRef

INSTALL: Final = "apt-get install bubblewrap"
ADVICE: Final = (
    f"Install it with `{INSTALL}`. If it is installed, this machine refuses user namespaces: set those it knows "
    "`sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=65536 "
    "kernel.apparmor_restrict_unprivileged_userns=0`, or start Docker with `--security-opt seccomp=unconfined`"
)
FIRST_UID: Final = 0x7000_0000
"""Boxes made by root get users from here on, 65,536 of them, which no system hands out."""


class BubblewrapBox:
    """One machine, driven by a `StandingShell`. `forget` is called once, when no process of it is left."""

    def __init__(self, label: str, shell: StandingShell, ledger: Ledger, forget: Callable[[], Awaitable[None]]) -> None:
        self._label = label
        self._shell = shell
        self._ledger = ledger
        self._forget = forget
        self._one_at_a_time = asyncio.Lock()
        self._is_destroyed = False
        self._ways_out: list[WayOut] = []

    @property
    def is_alive(self) -> bool:
        """Say whether commands can still run."""
        return self._shell.is_alive

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Run `command`; at its deadline everything in the box is killed, also what earlier commands left running."""
        async with self._one_at_a_time:
            if not self.is_alive:
                raise BoxLost(f"sandbox {self._label} is gone; nothing was started")
            if refused := refusal(command):
                return refused
            self._ledger.start("tool", key, label=self._label)
            try:
                return await self._shell.run(command, timeout_s)
            except BoxLost as error:
                await self._shell.end()
                raise BoxLost(f"sandbox {self._label}: {error}") from error
            except asyncio.CancelledError:
                self._shell.kill()  # what the command did is unknown, and so is the state of the shell
                raise

    async def open_way_out(self, gateway: Path, port: int = PORT) -> str:
        """See `WithWayOut`."""
        if not self.is_alive:
            raise BoxLost(f"sandbox {self._label} is gone")
        self._ways_out.append(await WayOut.open(self._shell.first_pid, gateway, port))
        return f"http://127.0.0.1:{port}"

    async def snapshot(self, blobs: Blobs, previous: Manifest | None = None) -> Taken:
        """See `WithSnapshots`."""
        async with self._one_at_a_time:
            if self._is_destroyed:
                raise BoxLost(f"sandbox {self._label} is gone, and its files with it")
            return await asyncio.to_thread(take, self._shell.room.work, blobs, previous=previous)

    async def restore(self, ref: BlobRef, blobs: Blobs) -> None:
        """See `WithSnapshots`."""
        async with self._one_at_a_time:
            if not self.is_alive:
                raise BoxLost(f"sandbox {self._label} is gone; nothing was restored")
            room = self._shell.room
            uid = None if room.uid == os.getuid() else room.uid
            await asyncio.to_thread(restore, ref, blobs, room.work, uid=uid)

    async def destroy(self) -> None:
        """End everything in the machine and remove its files; safe to repeat."""
        if not self._is_destroyed:
            self._is_destroyed = True
            for way in self._ways_out:
                await way.close()
            await self._shell.end()
            await self._forget()


class BubblewrapProvider:
    """Makes boxes with bwrap, their files under `work_dir`."""

    def __init__(self, config: Bubblewrap, work_dir: Path) -> None:
        self._limits = config.limits
        self._ledger = Ledger(config.ledger_path)
        self._is_root = os.getuid() == 0
        work_dir = work_dir.absolute()
        self._rooms = Rooms(reachable_parent(work_dir) if self._is_root else work_dir)
        self._tools: Tools | None = None
        self._boxes: dict[str, BubblewrapBox] = {}

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return "bubblewrap"

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        return frozenset({"snapshots", "way_out"})

    async def check(self) -> None:
        """Make a box, run a command, destroy it; raise `SandboxUnavailable` with what to do if that fails."""
        try:
            shell, room = await self._make("check")
            try:
                await shell.run("true", timeout_s=10)
            finally:
                await shell.end()
                await self._rooms.remove(room)
        except (CreateFailed, BoxLost) as error:
            raise SandboxUnavailable(f"bubblewrap cannot make a sandbox here: {error}. {ADVICE}") from error

    async def create(self, label: str) -> BubblewrapBox:
        """Make the machine `label`; raises `CreateFailed`, or `SandboxUnavailable` if bwrap is missing."""
        if label in self._boxes:
            raise CreateFailed(f"sandbox {label} exists already")
        shell, room = await self._make(label)

        async def forget() -> None:
            del self._boxes[label]
            await self._rooms.remove(room)

        box = self._boxes[label] = BubblewrapBox(label, shell, self._ledger, forget)
        return box

    async def reap(self) -> int:
        """Remove the directories of dead processes; their boxes died with them."""
        return await asyncio.to_thread(self._rooms.reap)

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        async with asyncio.TaskGroup() as group:
            for box in list(self._boxes.values()):
                group.create_task(box.destroy())
        self._ledger.close()
        await asyncio.to_thread(self._rooms.close)

    async def _make(self, label: str) -> tuple[StandingShell, Room]:
        """Start a box and wait for its shell; nothing is left if that fails."""
        uid = FIRST_UID + secrets.randbelow(65_536) if self._is_root else os.getuid()
        try:
            tools = self._tools = self._tools or _find_tools(self._rooms.own, is_root=self._is_root)
            room, shell = self._rooms.make(label, uid), None
        except OSError as error:
            raise CreateFailed(f"sandbox {label}: no directory can be made for it: {error}") from error
        command = argv(tools, room, self._limits)
        try:
            shell = StandingShell(_spawn(command), room, self._limits)
            await shell.start()
        except BaseException as error:
            if shell:
                shell.kill()
                await shell.end()
            reason = await asyncio.to_thread(_complaint, command) if isinstance(error, CreateFailed) else ""
            await self._rooms.remove(room)
            if isinstance(error, CreateFailed | OSError):
                raise CreateFailed(f"sandbox {label}: {error} {reason}".rstrip()) from error
            raise
        return shell, room


def _spawn(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a box. This thread must outlive it: its end is what the kernel takes for the end of the parent."""
    return subprocess.Popen(  # noqa: S603  our own arguments; labels are only part of a path
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        env=ENVIRONMENT,
    )


def _complaint(command: list[str]) -> str:
    """Return what bwrap says about a box that did not start. Blocking."""
    try:
        tried = subprocess.run(  # noqa: S603  the same
            command, stdin=subprocess.DEVNULL, capture_output=True, env=ENVIRONMENT, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return tried.stderr.decode(errors="replace").strip()[:500]


def _find_tools(directory: Path, *, is_root: bool) -> Tools:
    """Return the programs boxes are made with; raises `SandboxUnavailable` if one is missing."""
    bwrap, setpriv = shutil.which("bwrap"), shutil.which("setpriv")
    if not bwrap:
        raise SandboxUnavailable(f"bubblewrap is not installed. Install it with `{INSTALL}`")
    if is_root and not setpriv:
        raise SandboxUnavailable(
            "setpriv is missing, which root needs to give up its rights: `apt-get install util-linux`"
        )
    features = subprocess.run([bwrap, "--help"], capture_output=True, text=True, timeout=10, check=False).stdout  # noqa: S603
    shell = Path("/bin/sh").resolve()
    if not os.statvfs(directory).f_flag & os.ST_NOEXEC:
        copy = directory / "sh"
        shutil.copyfile(shell, copy)
        copy.chmod(0o111)
        shell = copy
    return Tools(bwrap, setpriv if is_root else None, shell, features)
