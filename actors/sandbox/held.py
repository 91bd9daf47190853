"""A machine in the hands of its actor, and the last snapshot of its files, on which the next one builds."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any, Final

from actors.sandbox.homes import keep_home, restore_home
from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent
from providers.sandboxes.base import Box
from providers.sandboxes.capabilities import WithEgress, WithSnapshots
from providers.sandboxes.enclosed_box import EnclosedBox
from providers.sandboxes.phases import Phase, PhaseChanged
from providers.sandboxes.processes import with_usual_path
from providers.sandboxes.snapshots import load
from schemas.events import CheckpointSaved
from schemas.snapshots import Manifest
from schemas.values import BlobRef, NetworkAttempt

CLEAR: Final = with_usual_path("chmod -R u+rwX . 2>/dev/null; rm -rf ./* ./.[!.]* ./..?*")
CLEARED_WITHIN_S: Final = 300.0


class HeldBox:
    """See the module. `label` is what is written on the machine, `is_warm` whether it was made before it was asked for."""

    def __init__(self, box: Box, blobs: Blobs, label: str, *, is_warm: bool = False) -> None:
        """Keep the files of `box` in `blobs`."""
        self.box = box
        self.label = label
        self.is_warm = is_warm
        self.launches: dict[str, Any] = {}
        self._blobs = blobs
        self.phase: Phase | None = None
        self._reaches = False
        self._last: Manifest | None = None

    async def clear(self, key: str) -> None:
        """Remove everything from the workspace, as the user that commands run as; what it cannot remove stays."""
        await self.box.exec(CLEAR, key=key, timeout_s=CLEARED_WITHIN_S)

    async def restore(self, ref: BlobRef, home: BlobRef | None = None) -> None:
        """Fill the new machine with the files of a snapshot, and of the agent's own program.

        Raises what `WithSnapshots.restore` and `restore_home` do.
        """
        await self._able().restore(ref, self._blobs)
        if home:
            await restore_home(self.box, home, self._blobs, f"restore {home.sha256}")
        self._last = await asyncio.to_thread(load, ref, self._blobs)

    async def keep(self, request_id: str, *, with_home: bool = False) -> CheckpointSaved:
        """Write a snapshot; raises what `WithSnapshots.snapshot` and `keep_home` do."""
        began = time.monotonic()
        home = await keep_home(self.box, self._blobs, request_id) if with_home else None
        taken = await self._able().snapshot(self._blobs, self._last)
        self._last = taken.manifest
        files = [entry for entry in taken.manifest.entries if entry.kind == "file"]
        return CheckpointSaved(
            request_id=request_id,
            snapshot=taken.ref,
            home=home,
            files=len(files),
            bytes=sum(piece.length for entry in files for piece in entry.pieces),
            stored_bytes=taken.stored_bytes,
            left_out=len(taken.manifest.left_out),
            duration_s=round(time.monotonic() - began, 4),
            paused_s=taken.paused_s,
        )

    async def enter(self, change: PhaseChanged) -> None:
        """Let the machine reach what its phase allows; raises what `WithEgress.allow` does."""
        if change.allow or self._reaches:  # what the phase before could reach it can no longer
            if not isinstance(self.box, WithEgress):
                msg = "this type of sandbox cannot be held to a list of hosts: choose another `sandbox.type`"
                raise Permanent(msg)
            await self.box.allow(change.allow, change.phase)
        self.phase, self._reaches = change.phase, bool(change.allow)

    def network(self) -> dict[str, Any]:
        """Return what the machine tried to reach since the last time, as events have it."""
        if not isinstance(self.box, EnclosedBox):
            return {}
        kept, dropped = self.box.egress.attempts.take()
        tried = tuple(NetworkAttempt(**asdict(attempt)) for attempt in kept)
        return {"network": tried, "network_dropped": dropped} if tried or dropped else {}

    def _able(self) -> WithSnapshots:
        if not isinstance(self.box, WithSnapshots):
            msg = "the files of this type of sandbox cannot be kept, nor made again: choose another `sandbox.type`"
            raise Permanent(msg)
        return self.box
