"""Which sandboxes this host has ever made, so that its next life knows where to look for what was left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import structlog
from pydantic import TypeAdapter, ValidationError

from schemas.sandboxes import Bubblewrap, Docker, SandboxConfig

log = structlog.get_logger(__name__)

KEPT: Final = 64
ANY: Final = "any"
"""An image that no machine is made of."""
_CONFIG: Final[TypeAdapter[SandboxConfig]] = TypeAdapter(SandboxConfig)


class UsedSandboxes:
    """The configurations of sandboxes in a file, one a line; the last `KEPT` are looked at."""

    def __init__(self, path: Path) -> None:
        """Keep them in `path`."""
        self._path = path
        self._known: set[str] = set()

    def add(self, config: SandboxConfig) -> None:
        """Remember one before its first machine is made."""
        line = _CONFIG.dump_json(_place(config)).decode()
        if line not in self._known and line not in self._lines():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        self._known.add(line)

    def all(self) -> list[SandboxConfig]:
        """Return them; a line that no longer says anything is left out."""
        found = []
        for line in self._lines()[-KEPT:]:
            try:
                found.append(_CONFIG.validate_json(line))
            except ValidationError as error:
                log.warning("used_sandbox_unreadable", path=str(self._path), reason=str(error)[:200])
        return found

    def _lines(self) -> list[str]:
        return self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []


def _place(config: SandboxConfig) -> SandboxConfig:
    """Return where machines are looked for: what tasks say of theirs makes no other place, and must not push one out."""
    match config:
        case Bubblewrap():
            return Bubblewrap()
        case Docker():
            return Docker(image=ANY, socket=config.socket)
        case _:
            return config
