"""What boxes may read of this host, shown to each of them through a view of its own.

Two boxes that see the same file of this host can talk by it, though neither can write to it: one locks it, or opens it while the other
watches. Through a view of its own (an overlay with nothing in it but what is below) each box has other objects of the kernel for the
same contents, and device nodes of its own do the same for devices. Only root can make either, and not everywhere: what has no view is
shown as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import structlog

from providers.sandboxes.mounts import mount_settings, mount_view
from providers.sandboxes.rooms import Room

log = structlog.get_logger(__name__)

DEVICES: Final = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
"""The devices that a box has, by name: major and minor numbers, as in Linux's list of allocated devices."""

SETTINGS: Final = Path("/proc/sys")


class OwnViews:
    """Makes the views of this process's boxes; of what cannot be had it says so once."""

    def __init__(self) -> None:
        self._missing: set[str] = set()
        self._crossed = _mount_points()

    def of(self, room: Room, sources: Iterable[Path]) -> dict[Path, Path]:
        """Return where each of `sources` is to be seen for the box `room`; what has no view is not in there. Blocking, for no time."""
        (room.views / "nothing").mkdir(parents=True)
        found: dict[Path, Path] = {}
        for number, source in enumerate(sources):
            if source != SETTINGS and any(point.is_relative_to(source) and point != source for point in self._crossed):
                self._miss(source, "something is mounted in it")
                continue
            at = room.views / f"v{number}"
            at.mkdir()
            try:
                found[source] = _mounted(source, room, at)
            except OSError as error:
                self._miss(source, str(error))
        return found

    def devices(self, room: Room) -> list[Path]:
        """Return device nodes that are the box's own, each named like the device; none where they cannot be made or used."""
        nodes: list[Path] = []
        try:
            for name, numbers in DEVICES.items():
                node = room.views / name
                os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*numbers))
                node.chmod(0o666)
                nodes.append(node)
            os.close(os.open(room.views / "null", os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            self._miss(Path("/dev"), str(error))
            return []
        return nodes

    def _miss(self, source: Path, reason: str) -> None:
        if str(source) not in self._missing:
            self._missing.add(str(source))
            log.warning("sandboxes_share_files", path=str(source), reason=reason)


def _mounted(source: Path, room: Room, at: Path) -> Path:
    if source == SETTINGS:
        return mount_settings(at)
    mount_view(source, room.views / "nothing", at)
    return at


def _mount_points() -> list[Path]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    return [Path(line.split()[1].encode().decode("unicode_escape")) for line in lines]
