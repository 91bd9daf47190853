"""What this host is installing for agents' own programs: the first sandbox of a kind waits for it, for a minute or more."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

LOOK_EVERY_S: Final = 1.0


@dataclass
class Installs:
    """Looked at now and then, and not in the first second, so that a quick run does not pay for loading what looks."""

    directory: Path
    _names: list[str] = field(default_factory=list)
    _look_at: float = field(default_factory=lambda: time.monotonic() + LOOK_EVERY_S)

    def note(self) -> str | None:
        """Return what is to be said of them, None if there are none."""
        if time.monotonic() >= self._look_at:
            from adapters.harnesses.installing import installs_of, under_way  # noqa: PLC0415  see above

            self._names = under_way(installs_of(self.directory))
            self._look_at = time.monotonic() + LOOK_EVERY_S
        return f"being installed, once for this host: {', '.join(self._names)}" if self._names else None
