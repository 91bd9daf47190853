"""What an image has in a directory, as the beginning of a box's files: read out of a container that never runs.

An image is a stranger's: its archive is unpacked as one (`archived.py`).
"""

from __future__ import annotations

import asyncio
import http.client
import io
import os
import tarfile
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO, Final, cast
from urllib.parse import urlencode

from gym_bus.engine_http import ANSWER_MAX_BYTES, asked, words_of
from providers.sandboxes.archived import unpack
from providers.sandboxes.base import CreateFailed
from providers.sandboxes.docker_owners import labels_of
from providers.sandboxes.rooms import Room
from providers.sandboxes.snapshots import SnapshotLimits
from providers.sandboxes.snapshots.limits import read_back

SILENT_S: Final = 60.0
USERS: Final = "/etc/passwd"
USERS_MAX_BYTES: Final = 1024 * 1024
SEEDED: Final = SnapshotLimits(files=200_000, bytes=8 * 1024**3, depth=256)
"""The most that an image may have there: what a snapshot of the workspace may hold."""


def body_of_seed(image: str, label: str) -> dict[str, Any]:
    """Return the engine's request for a container that is only looked into."""
    return {"Image": image, "Entrypoint": ["/bin/true"], "Cmd": [], "NetworkDisabled": True, "Labels": labels_of(label)}


async def seed(socket: str, container_id: str, directory: str, room: Room) -> None:
    """Fill the empty workspace of `room` with what a container has in `directory`, which may be missing.

    Raises `CreateFailed`, and what `unpack` does.
    """
    await asyncio.to_thread(_seed, socket, container_id, directory, room)


async def user_in(socket: str, container_id: str, name: str) -> tuple[int, int]:
    """Return the numbers of the user `name` and its group, as a container's image has them; raises `CreateFailed`."""
    return await asyncio.to_thread(_user_in, socket, container_id, name)


def _user_in(socket: str, container_id: str, name: str) -> tuple[int, int]:
    question = f"/containers/{container_id}/archive?{urlencode({'path': USERS})}"
    try:
        with asked(socket, "GET", question, SILENT_S) as answer:
            content = answer.read(USERS_MAX_BYTES) if answer.status == HTTPStatus.OK else b""
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            file = tar.extractfile(tar.getmembers()[0])
            text = file.read().decode(errors="replace") if file else ""
    except (OSError, http.client.HTTPException, tarfile.TarError, LookupError) as error:
        raise CreateFailed(f"{USERS} of the image was not read, so nobody knows who {name!r} is: {error}") from error
    for line in text.splitlines():
        match line.split(":"):
            case [known, _, uid, gid, *_] if known == name and uid.isdecimal() and gid.isdecimal() and int(uid) > 0:
                return int(uid), int(gid)
            case _:
                pass
    raise CreateFailed(f"the image has no user {name!r} who is not root")


def _seed(socket: str, container_id: str, directory: str, room: Room) -> None:
    question = f"/containers/{container_id}/archive?{urlencode({'path': f'{directory}/.'})}"
    try:
        with asked(socket, "GET", question, SILENT_S) as answer:
            if answer.status == HTTPStatus.NOT_FOUND:
                return
            if answer.status != HTTPStatus.OK:
                raise CreateFailed(
                    f"{directory} of the image: the engine says {words_of(answer.read(ANSWER_MAX_BYTES))}"
                )
            modes = unpack(cast("BinaryIO", answer), room.work, SEEDED)
    except (OSError, http.client.HTTPException) as error:
        raise CreateFailed(f"{directory} of the image was not read: {error}") from error
    _give(room.work, modes, room.uid)


def _give(root: Path, modes: dict[str, int], uid: int) -> None:
    """Make everything below `root` the box's user's, who may write to what is its own, with the rights that it had."""
    base = os.fsencode(root)
    for name, mode in modes.items():
        os.chmod(os.path.join(base, read_back(name)), mode | 0o600)  # noqa: PTH101, PTH118  bytes
    if uid == os.getuid():
        return
    for parent, directories, files in os.walk(base):
        for one in (*directories, *files):
            os.chown(os.path.join(parent, one), uid, uid, follow_symlinks=False)  # noqa: PTH118  bytes
