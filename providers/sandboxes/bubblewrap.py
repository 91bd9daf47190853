"""The default sandbox: bubblewrap, with a shell standing in it.

No network, a read-only system, no capabilities, a user without rights (of its own for each box if we are root), a filter
of system calls, and only /box, /tmp and /dev/shm to write to. Namespaces are not a virtual machine: the kernel is shared
with the host. What is bounded is each process (CPU time, size of a file), the number of processes, and /tmp. Memory is bounded
for a box as a whole where root can make control groups, else process by process.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import subprocess
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from providers.sandboxes.base import BoxLost, Capability, CreateFailed, SandboxUnavailable
from providers.sandboxes.bubblewrap_argv import ENVIRONMENT, Tools, argv, seen, with_filter
from providers.sandboxes.bubblewrap_spare import Laid, Spare, spawned
from providers.sandboxes.capabilities import Terminal
from providers.sandboxes.control_groups import BoxGroup, Groups, memory_hierarchy, remove_groups_of
from providers.sandboxes.enclosed_box import EnclosedBox
from providers.sandboxes.in_the_making import InTheMaking
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.own_views import OwnViews
from providers.sandboxes.rooms import Room, Rooms
from providers.sandboxes.seccomp import filter_to_read
from providers.sandboxes.shared_directories import shown as allowed
from providers.sandboxes.side_terminal import SideTerminal
from providers.sandboxes.standing_shell import StandingShell
from schemas.network import parse_hosts
from schemas.sandboxes import Bubblewrap

INSTALL: Final = "apt-get install bubblewrap"
ADVICE: Final = (
    f"Install it with `{INSTALL}`. If it is installed, this machine refuses user namespaces: set those it knows "
    "`sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=65536 "
    "kernel.apparmor_restrict_unprivileged_userns=0`, or start Docker with `--security-opt seccomp=unconfined`"
)
FIRST_UID: Final = 0x7000_0000
"""Boxes made by root get users from here on, 65,536 of them, which no system hands out."""
SPARE_STARTS_WITHIN_S: Final = 5.0
"""A spare has begun already; one that does not go on was stopped."""


class BubblewrapBox(EnclosedBox[StandingShell]):
    """One machine, driven by a `StandingShell`."""

    async def terminal(self, command: str, *, key: str, rows: int = 24, columns: int = 80) -> Terminal:
        """See `WithTerminal`."""
        self._ready("nothing was started")
        self._ledger.start("tool", key, label=self._label)
        with self._named():
            return await SideTerminal.open(self._side, command, rows, columns)


class BubblewrapProvider:
    """Makes boxes with bwrap, their files under `work_dir`."""

    def __init__(self, config: Bubblewrap, work_dir: Path) -> None:
        self._limits = config.limits
        self._private = parse_hosts(config.network.private)
        self._shared = config.shared
        self._layout = config.layout
        self._ledger = Ledger(config.ledger_path)
        self._is_root = os.getuid() == 0
        work_dir = self._work_dir = work_dir.absolute()
        self._rooms = Rooms.reachable(work_dir) if self._is_root else Rooms(work_dir)
        self._tools: Tools | None = None
        self._boxes: dict[str, BubblewrapBox] = {}
        self._making = InTheMaking()
        self._groups: Groups | None = None
        self._views = OwnViews()
        self._spare = Spare(self._rooms, partial(self._laid, is_spare=True))

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return "bubblewrap"

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        always: frozenset[Capability] = frozenset({"detached", "egress", "files", "pause", "snapshots", "way_out"})
        with_script: frozenset[Capability] = frozenset({"terminal"})
        return always | with_script if shutil.which("script", path=ENVIRONMENT["PATH"]) else always

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
        with self._making.one(label, self._boxes):
            return await self._create(label)

    async def _create(self, label: str) -> BubblewrapBox:
        shell, room = await self._make(label)

        async def forget() -> None:
            try:
                await self._rooms.remove(room)
            finally:  # not before: who closes the provider waits for what is still in here
                del self._boxes[label]

        box = self._boxes[label] = BubblewrapBox(label, shell, self._limits, self._ledger, forget, self._private)
        return box

    async def reap(self) -> int:
        """Remove the directories of dead processes; their boxes died with them."""
        return await asyncio.to_thread(self._rooms.reap, remove_groups_of)

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        await self._making.aclose()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._spare.aclose())
            for box in list(self._boxes.values()):
                group.create_task(box.destroy())
        self._ledger.close()
        if self._groups:
            self._groups.close()
        await asyncio.to_thread(self._rooms.close)

    async def _make(self, label: str) -> tuple[StandingShell, Room]:
        """Start a box and wait for its shell; nothing is left if that fails. What was laid out and does not start is left aside."""
        if spare := await self._spare.taken():
            with suppress(CreateFailed):
                return await self._begun(label, *spare)
        try:
            laid = self._laid()
        except OSError as error:
            raise CreateFailed(f"sandbox {label}: no directory can be made for it: {error}") from error
        return await self._begun(label, laid)

    async def _begun(
        self, label: str, laid: Laid, spare: subprocess.Popen[bytes] | None = None
    ) -> tuple[StandingShell, Room]:
        room, memory = laid.room, laid.memory
        shell = None
        try:
            process = spare or spawned(laid.command)
            shell = StandingShell(process, room, self._limits, memory=memory, freezes_in=self._groups)
            if spare:
                await shell.start(within_s=SPARE_STARTS_WITHIN_S, moves=False)
            else:
                await shell.start()
        except BaseException as error:
            if shell:
                shell.kill()
                await shell.end()
            elif memory:
                await memory.remove()
            reason = await asyncio.to_thread(_complaint, laid.command) if isinstance(error, CreateFailed) else ""
            await self._rooms.remove(room)
            if isinstance(error, CreateFailed | OSError):
                raise CreateFailed(f"sandbox {label}: {error} {reason}".rstrip()) from error
            raise
        self._spare.refill()
        return shell, room

    def _laid(self, *, is_spare: bool = False) -> Laid:
        """Lay out what becomes a box: with views of its own of what others see too, where root can make them; raises `OSError`."""
        tools = self._tools = self._tools or _find_tools(self._rooms.own, is_root=self._is_root)
        groups = self._groups = self._groups or Groups(self._rooms.own)
        uid = FIRST_UID + secrets.randbelow(65_536) if self._is_root else os.getuid()
        shown = [*seen(), *allowed(self._shared, self._work_dir, to_others=self._is_root)]
        devices: list[Path] = []
        room = self._rooms.make("box", uid, self._limits.disk_mib, is_spare=is_spare)
        try:
            if self._is_root:
                views = self._views.of(room, [source for source, _ in shown])
                shown = [(views.get(source, source), at) for source, at in shown]
                devices = self._views.devices(room)
        except OSError:
            room.remove()
            raise
        return Laid(room, argv(tools, room, self._limits, shown, devices, self._layout), self._bounded(groups, room))

    def _bounded(self, groups: Groups, room: Room) -> BoxGroup | None:
        """Return a group that bounds the memory of a box as a whole; None where there can be none."""
        group = groups.make(room.path.name, memory_hierarchy()) if self._is_root else None
        try:
            if group:
                group.bound(self._limits.memory_mib + (self._limits.disk_mib or 0))
        except OSError:
            return None
        return group


def _complaint(command: list[str]) -> str:
    """Return what bwrap says about a box that did not start. Blocking."""
    try:
        with filter_to_read() as seccomp:
            tried = subprocess.run(  # noqa: S603  the same
                with_filter(command, seccomp),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=ENVIRONMENT,
                pass_fds=(seccomp,),
                timeout=10,
                check=False,
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
