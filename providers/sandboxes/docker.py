"""Sandboxes in containers, of Docker or of podman behind its Docker-compatible socket.

No network, a read-only image, no capabilities and none to be had, a user without rights, our filter of system calls, and only
/box, /tmp and /dev/shm to write to. Memory and processes are bounded for a box as a whole; its files in /box, which lie on the
host beside those of bubblewrap, are bounded one by one. Containers are not virtual machines: the kernel is shared with the host.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from aiodocker.containers import DockerContainer

from gym_bus.errors import GymBusError, Permanent
from providers.sandboxes.base import BoxLost, Capability, CreateFailed, ExecResult, SandboxUnavailable
from providers.sandboxes.capabilities import Terminal
from providers.sandboxes.docker_container import body_of, name_of
from providers.sandboxes.docker_engine import Engine, EngineRefused
from providers.sandboxes.docker_images import Images
from providers.sandboxes.docker_owners import LABEL, containers_of, is_orphan, labels_of, reap, remove
from providers.sandboxes.docker_seccomp import seccomp_option
from providers.sandboxes.docker_seed import body_of_seed, seed, user_in
from providers.sandboxes.docker_shell import ContainerShell
from providers.sandboxes.enclosed_box import EnclosedBox
from providers.sandboxes.in_the_making import InTheMaking
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.rooms import Room, Rooms
from providers.sandboxes.shared_directories import shown
from schemas.network import parse_hosts
from schemas.sandboxes import Docker, workspace_of

USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class DockerBox(EnclosedBox[ContainerShell]):
    """One container, driven by a `ContainerShell`."""

    async def exec_as(self, user: str, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """See `WithUsers`. No user has capabilities, root neither; the workspace is the box's own user's, and others only read it."""
        if not USER.fullmatch(user):
            raise Permanent(f"{user!r} is no user's name or number")
        return await self._exec(command, key, partial(self._shell.run_as, user, command, timeout_s))

    async def terminal(self, command: str, *, key: str, rows: int = 24, columns: int = 80) -> Terminal:
        """See `WithTerminal`."""
        self._ready("nothing was started")
        self._ledger.start("tool", key, label=self._label)
        with self._named():
            return await self._shell.terminal(command, rows, columns)


class DockerProvider:
    """Makes containers, their files under `work_dir`, which the engine has to see as well: it runs on this host."""

    def __init__(self, config: Docker, work_dir: Path) -> None:
        self._config = config
        self._private = parse_hosts(config.network.private)
        self._ledger = Ledger(config.ledger_path)
        self._is_root = os.getuid() == 0
        self._user: tuple[int, int] | None = None
        work_dir = self._work_dir = work_dir.absolute()
        self._rooms = Rooms.reachable(work_dir) if self._is_root else Rooms(work_dir)
        self._engine = Engine(config.socket)
        self._images = Images(config, self._engine.socket)
        self._boxes: dict[str, DockerBox] = {}
        self._making = InTheMaking()
        self._has_reaped = False
        self._seccomp: str | None = None

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return "docker"

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        always: frozenset[Capability] = frozenset(
            {"detached", "egress", "files", "pause", "snapshots", "terminal", "way_out"}
        )
        as_root: frozenset[Capability] = frozenset({"users"})  # to end at its deadline what another user started
        return always | as_root if self._is_root else always

    async def check(self) -> None:
        """Make a box, run a command, destroy it; raise `SandboxUnavailable` with what to do if that fails."""
        label = f"check.{secrets.token_hex(8)}"
        try:
            box = await self.create(label)
            try:
                done = await box.exec("echo >/box/file", key=label, timeout_s=10)
            finally:
                await box.destroy()
        except (CreateFailed, BoxLost) as error:
            raise SandboxUnavailable(
                f"no sandbox can be made of the image {self._config.image or self._config.dockerfile}: {error}"
            ) from error
        if done.exit_code != 0:
            raise SandboxUnavailable(
                f"a container of the engine at {self._engine.socket} cannot write to its files on this host ({done.output.strip()}): "
                "engines elsewhere, and those that run without root, will not do"
            )

    async def create(self, label: str) -> DockerBox:
        """Make the machine `label`; raises `CreateFailed`, or `SandboxUnavailable` without an engine, the image or the right user."""
        with self._making.one(label, self._boxes):
            return await self._create(label)

    async def _create(self, label: str) -> DockerBox:
        self._check_user()
        await self._make_way(label)
        if self._user is None:
            self._user = await self._known_user(label)
            self._check_user()
        uid, _ = self._user
        try:
            room = self._rooms.make(label, uid, self._config.limits.disk_mib)
        except OSError as error:
            raise CreateFailed(f"sandbox {label}: no directory can be made for it: {error}") from error
        if self._is_root:
            room.work.chmod(0o755)  # for the box's other users; on this host nobody passes the directory it is in
        try:
            shell = await self._start(label, room)
        except BaseException:
            await self._rooms.remove(room)
            raise

        async def forget() -> None:
            try:
                await self._rooms.remove(room)
            finally:  # not before: who closes the provider waits for what is still in here
                del self._boxes[label]

        box = self._boxes[label] = DockerBox(label, shell, self._config.limits, self._ledger, forget, self._private)
        return box

    async def reap(self) -> int:
        """Remove the containers of dead processes, then their files; a machine has both, or one that is left of it."""
        containers = await reap(self._engine)
        return max(containers, await asyncio.to_thread(self._rooms.reap))

    async def aclose(self) -> None:
        """Destroy every machine still alive."""
        await self._making.aclose()
        try:
            async with asyncio.TaskGroup() as group:
                for box in list(self._boxes.values()):
                    group.create_task(box.destroy())
        finally:
            await self._engine.aclose()
            self._ledger.close()
            await asyncio.to_thread(self._rooms.close)

    async def _make_way(self, label: str) -> None:
        """Remove what dead processes left, and refuse a second machine of the same label, whoever holds the first."""
        if not self._has_reaped:
            self._has_reaped = True
            await reap(self._engine)
        for twin in await containers_of(self._engine, f"{LABEL}={label}"):
            if not is_orphan(twin["Labels"]):
                raise CreateFailed(f"sandbox {label} exists already: container {twin.id[:12]}")
            await remove(self._engine, twin)

    async def _created(self, label: str, body: dict[str, Any]) -> DockerContainer:
        create = self._engine.client.containers.create(body, name=name_of(label))
        try:
            return await self._engine.ask(f"sandbox {label}: creating a container", create)
        except EngineRefused:
            raise
        except BaseException:  # what was not answered may have been done
            await self._remove_own(label)
            raise

    async def _remove_own(self, label: str) -> None:
        with suppress(GymBusError):
            for container in await containers_of(self._engine, *(f"{k}={v}" for k, v in labels_of(label).items())):
                await remove(self._engine, container)

    def _check_user(self) -> None:
        """Refuse a user whom files cannot be given to, as soon as it is known who that is; raises `SandboxUnavailable`."""
        if self._user is None and ":" in self._config.user:
            uid, _, gid = self._config.user.partition(":")
            self._user = int(uid), int(gid)
        if not self._is_root and self._user is not None and self._user[0] != os.getuid():
            raise SandboxUnavailable(
                f"sandbox.user is {self._config.user}, and only root can give files to it: "
                f"set sandbox.user={os.getuid()}:{os.getgid()}"
            )

    async def _known_user(self, label: str) -> tuple[int, int]:
        """Return who it is that the image has a name for."""
        container = await self._made_of_image(label, body_of_seed(await self._images.name(), label))
        try:
            return await user_in(self._engine.socket, container.id, self._config.user)
        finally:
            await remove(self._engine, container)

    async def _made_of_image(self, label: str, body: dict[str, Any]) -> DockerContainer:
        """Create a container, after its image was fetched if the engine has not got it."""
        try:
            return await self._created(label, body)
        except EngineRefused as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            await self._images.fetch(str(error))
        return await self._created(label, body)

    async def _seed(self, label: str, room: Room) -> None:
        """Begin the workspace with what the image has there."""
        body = body_of_seed(await self._images.name(), label)
        container = await self._made_of_image(label, body)
        try:
            await seed(self._engine.socket, container.id, workspace_of(self._config), room)
        except Permanent as error:
            raise CreateFailed(f"sandbox {label}: its workspace cannot begin as the image's: {error}") from error
        finally:
            await remove(self._engine, container)

    async def _start(self, label: str, room: Room) -> ContainerShell:
        """Create and start the container; nothing is left of it if that fails."""
        if self._seccomp is None:
            self._seccomp = await seccomp_option(self._engine, self._rooms.own)
        shared = shown(self._config.shared, self._work_dir, to_others=False)  # the engine mounts them, as root
        uid, gid = self._user or (room.uid, room.uid)
        known = self._config.replaced(image=await self._images.name(), user=f"{uid}:{gid}")
        body = body_of(known, label, room, shared)
        body["HostConfig"]["SecurityOpt"].append(self._seccomp)
        if self._config.layout.is_seeded:
            await self._seed(label, room)
        container = await self._made_of_image(label, body)
        shell = ContainerShell(self._engine, container, room, self._config.limits)
        try:
            await shell.start()
        except BaseException:
            await shell.end()
            raise
        return shell
