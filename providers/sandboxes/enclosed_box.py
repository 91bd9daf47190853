"""A box on this host with a network namespace of its own: it can be given one way out."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

from providers.sandboxes.local_box import LocalBox, Shell
from providers.sandboxes.way_out import PORT, WayOut


class EnclosedShell(Shell, Protocol):
    """What runs the commands of a box whose first process this host knows."""

    async def first_pid(self) -> int:
        """Return the pid, as this host sees it, of the box's first process; raises `BoxLost`."""
        ...


EnclosedT = TypeVar("EnclosedT", bound=EnclosedShell)


class EnclosedBox(LocalBox[EnclosedT]):
    """See the module."""

    _ways_out: tuple[WayOut, ...] = ()

    async def open_way_out(self, gateway: Path, port: int = PORT) -> str:
        """See `WithWayOut`."""
        self._check("no way out was made")
        with self._named():
            self._ways_out += (await WayOut.open(await self._shell.first_pid(), gateway, port),)
        return f"http://127.0.0.1:{port}"

    async def _leave(self) -> None:
        for way in self._ways_out:
            await way.close()
