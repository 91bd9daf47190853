"""Snapshots of the workspace of a box whose files are in a room on this host."""

from __future__ import annotations

import asyncio
import os

from gym_bus.blobs import Blobs
from providers.sandboxes.rooms import Room
from providers.sandboxes.snapshots import Taken, restore, take
from schemas.snapshots import Manifest
from schemas.values import BlobRef


class RoomSnapshots:
    """Takes and restores the workspace of `room`; the caller sees to it that no command runs meanwhile."""

    def __init__(self, room: Room) -> None:
        self._room = room

    async def take(self, blobs: Blobs, previous: Manifest | None) -> Taken:
        """See `WithSnapshots`."""
        return await asyncio.to_thread(take, self._room.work, blobs, previous=previous)

    async def restore(self, ref: BlobRef, blobs: Blobs) -> None:
        """See `WithSnapshots`; the files are the box's user's."""
        uid = None if self._room.uid == os.getuid() else self._room.uid
        await asyncio.to_thread(restore, ref, blobs, self._room.work, uid=uid)
