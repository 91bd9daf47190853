"""An account of effects that is kept outside the event log, so that a test can compare the two."""

from __future__ import annotations

import json
import os
from typing import Literal


class Ledger:
    """Appends a line to a file, which processes may share, when an effect starts. Without a path it does nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._fd: int | None = None

    def start(self, kind: Literal["tool", "model"], key: str, **facts: str | int) -> None:
        """Write down that the effect `key` starts now; one write call, so lines of several processes never mix."""
        if self._path is None:
            return
        if self._fd is None:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        os.write(self._fd, json.dumps({"kind": kind, "key": key, **facts}).encode() + b"\n")

    def close(self) -> None:
        """Give the file back; the next `start` opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
