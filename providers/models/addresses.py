"""Which of a model's addresses a call goes to.

A session keeps to one address, so that the server's cache of its prompt is of use: the address with the highest hash of both. When
the list changes, only sessions move whose address went, or for which a new one is now the highest. An address that refused a
connection comes last for a while.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gym_bus.endpoint_file import BadEndpointFile, read_addresses

LOOK_EVERY_S: Final = 5.0
DOWN_FOR_S: Final = 10.0


class Addresses:
    """See the module. With a file, its addresses take the place of the `fixed` ones as soon as it has any."""

    def __init__(
        self,
        fixed: tuple[str, ...],
        file: Path | None = None,
        stale_grace_s: float = 300,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at `file` every five seconds at most; while it is unfit, what it said before is good for `stale_grace_s`."""
        self._current = fixed
        self._file = file
        self._stale_grace_s = stale_grace_s
        self._now = now
        self._looked_at: float | None = None
        self._unfit_since: float | None = None
        self._problem = ""
        self._down_until: dict[str, float] = {}

    @property
    def problem(self) -> str:
        """Return what is wrong with the file, and for how long it has been."""
        since = f" (for {self._now() - self._unfit_since:.0f} s now)" if self._unfit_since is not None else ""
        return f"{self._problem}{since}"

    def ranked(self, session: str) -> tuple[str, ...]:
        """Return the addresses for a call of `session`, the best first; none if the file is unfit and its grace is over."""
        self._look()
        now = self._now()
        if self._unfit_since is not None and now - self._unfit_since > self._stale_grace_s:
            return ()
        self._down_until = {address: until for address, until in self._down_until.items() if until > now}
        return tuple(sorted(self._current, key=lambda a: (self._down_until.get(a, 0.0), -_weight(session, a))))

    def refused(self, address: str) -> bool:
        """Note that nobody takes connections there; return whether there is another address to try at once."""
        now = self._now()
        self._down_until[address] = now + DOWN_FOR_S
        return any(self._down_until.get(other, 0.0) <= now for other in self._current)

    def _look(self) -> None:
        """Read the file if it is time to; a small file, so that a thread would cost more than it saves."""
        now = self._now()
        if self._file is None or (self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S):
            return
        self._looked_at = now
        try:
            self._current = read_addresses(self._file)
        except BadEndpointFile as error:
            self._problem = str(error)
            if self._unfit_since is None:
                self._unfit_since = now
        else:
            self._unfit_since = None


def _weight(session: str, address: str) -> int:
    """Return the rank of an address for a session (Thaler and Ravishankar, 1998: rendezvous hashing)."""
    return int.from_bytes(hashlib.sha256(f"{session}\0{address}".encode(errors="replace")).digest()[:8], "big")
