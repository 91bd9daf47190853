"""Whose a machine is: what is written on it when it is made, so that it is always found again, and told apart from another's.

Makers of machines take plain words as values, of at most 63 letters: what is longer is hashed. A machine is an orphan if it is of this
host and the process that made it is surely dead. Of another host's machines nothing can be known: they end when nobody renews them.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from providers.sandboxes.owners import boot, pid_namespace, started

OURS: Final = "gymbus"
HOST: Final = "gymbus-host"
LABEL: Final = "gymbus-label"
RUN: Final = "gymbus-run"
MADE: Final = "gymbus-made"
OWNER: Final = "gymbus-owner"
BOOT: Final = "gymbus-boot"
PIDS: Final = "gymbus-pids"
WORD: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def word(text: str) -> str:
    """Return `text` if it can be written on a machine, else a name for it that is the same each time."""
    return text if WORD.fullmatch(text) else f"h{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def run_of(label: str) -> str:
    """Return the run that a label begins with."""
    return word(label.partition(".")[0])


class Host:
    """This host, by a name that outlives its processes: a file in the directory where its sandboxes are kept."""

    def __init__(self, work_dir: Path) -> None:
        self._path = work_dir / "host"

    def name(self) -> str:
        """Return the name; it is made when it is first asked for. Blocking, for no time."""
        with suppress(FileNotFoundError):
            return self._path.read_text(encoding="ascii")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        own = self._path.with_name(f".host-{secrets.token_hex(8)}")
        own.write_text(secrets.token_hex(16), encoding="ascii")
        try:
            with suppress(FileExistsError):  # the first one stays
                os.link(own, self._path)
        finally:
            own.unlink()
        return self._path.read_text(encoding="ascii")

    def mark(self, label: str) -> dict[str, str]:
        """Return what is written on a machine that this process makes for the box `label`; no two are alike."""
        return {
            OURS: "1",
            LABEL: word(label),
            RUN: run_of(label),
            MADE: secrets.token_hex(16),
            **self.process(),
        }

    def process(self) -> dict[str, str]:
        """Return what is written on all machines of this process."""
        pid = os.getpid()
        return {HOST: self.name(), OWNER: f"{pid}-{started(pid)}", BOOT: boot(), PIDS: _pids()}

    def is_own(self, metadata: Mapping[str, str]) -> bool:
        """Say whether a machine is of this host."""
        return metadata.get(HOST) == self.name()

    def is_orphan(self, metadata: Mapping[str, str]) -> bool:
        """Say whether a machine is of this host, and the process that made it surely dead."""
        if not self.is_own(metadata):
            return False
        if metadata.get(BOOT) != boot():
            return True
        if metadata.get(PIDS) != _pids():
            return False
        pid, _, since = metadata.get(OWNER, "").partition("-")
        return not pid.isdecimal() or started(int(pid)) != since


def _pids() -> str:
    return re.sub(r"\D", "", pid_namespace())
