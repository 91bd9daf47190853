"""Tells what an agent does, as JSON lines, without holding it up: a line is made at once, and written by a thread of its own.

What was told stands: each line is only what is new, so nothing that was written is ever written anew, and whoever reads them in order
has all that was told up to there, however the agent ends. Only the last line of all, the result, says that the work is done.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from typing import Any

TEXT_MAX_CHARS = 256 * 1024
"""Of a longer text the beginning is told."""
TOLD_MAX_BYTES = 24 * 1024 * 1024
"""For all lines but the last: what is beyond is left out, and counted."""
LEFT_OUT = "left_out"


class Telling:
    """Lines for the file descriptor `descriptor`, in the order in which they were told, by whatever thread."""

    def __init__(self, descriptor: int) -> None:
        """Begin to write."""
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._told = 0
        self._left_out = 0
        self._is_over = False
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def tell(self, kind: str, **facts: Any) -> None:
        """Tell one thing; returns at once."""
        line = line_of(kind, facts)
        with self._changed:
            if self._is_over:
                return
            self._told += len(line)
            if self._told > TOLD_MAX_BYTES:
                self._left_out += 1
                return
            self._waiting.append(line)
            self._changed.notify_all()

    def end(self, within_s: float, kind: str | None = None, **facts: Any) -> bool:
        """Tell the last thing, if there is one, and wait until all is written; return whether it is."""
        until = time.monotonic() + within_s
        with self._changed:
            self._is_over = True
            if self._left_out:
                self._waiting.append(line_of(LEFT_OUT, {"count": self._left_out}))
            if kind is not None:
                self._waiting.append(line_of(kind, facts))
            self._changed.notify_all()
        self._writer.join(max(until - time.monotonic(), 0))
        return not self._writer.is_alive() and not self._waiting

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._is_over:
                    self._changed.wait()
                if not self._waiting:
                    return
                line = self._waiting[0]
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:  # nobody reads any more
                return
            with self._changed:
                self._waiting.popleft()


def line_of(kind: str, facts: dict[str, Any]) -> bytes:
    """Return a line; long texts are cut, and what is no JSON is told by its `repr`."""
    return (
        json.dumps({"type": kind, **{name: cut(fact) for name, fact in facts.items()}}, default=repr) + "\n"
    ).encode()


def cut(fact: Any) -> Any:
    """Return a text's beginning, if it is too long."""
    if isinstance(fact, str) and len(fact) > TEXT_MAX_CHARS:
        return f"{fact[:TEXT_MAX_CHARS]}\n[{len(fact) - TEXT_MAX_CHARS} more characters]"
    return fact
