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

Json = dict[str, Any]

TEXT_MAX_CHARS = 256 * 1024
"""Of a longer text the beginning is told."""
TOLD_MAX_BYTES = 24 * 1024 * 1024
"""For all lines but the last: what is beyond is left out, and counted."""
LINE_MAX_BYTES = 4 * 1024 * 1024
"""A longer line is left out as well: whoever reads them keeps nothing of one of 8 MiB."""
LEFT_OUT = "left_out"


class Telling:
    """Lines for the file descriptor `descriptor`, in the order in which they were told, by whatever thread.

    Only the process that it was made in can tell. A descriptor that the agent has closed is written to no more, whatever it is by then.
    """

    def __init__(self, descriptor: int) -> None:
        """Begin to write."""
        self._descriptor = descriptor
        self._file = identity_of(descriptor)
        self._process = os.getpid()
        self._waiting: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._told = 0
        self._left_out = 0
        self._is_over = False
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def tell(self, kind: str, **facts: Any) -> None:
        """Tell one thing; returns at once. Raises `RuntimeError` in a process that was forked, where nobody would write it."""
        if os.getpid() != self._process:
            raise RuntimeError("what is done can only be told by the agent's own process: let its children return it")
        line = line_of(kind, facts)
        with self._changed:
            if self._is_over:
                return
            if len(line) > LINE_MAX_BYTES or self._told + len(line) > TOLD_MAX_BYTES:
                self._left_out += 1
                return
            self._told += len(line)
            self._waiting.append(line)
            self._changed.notify_all()

    def end(self, within_s: float, kind: str | None = None, **facts: Any) -> bool:
        """Tell the last thing, if there is one, and wait until all is written; return whether it is.

        There is one end: a second one tells nothing, and neither does that of a process that was forked.
        """
        if os.getpid() != self._process:
            return False
        until = time.monotonic() + within_s
        with self._changed:
            if not self._is_over:
                self._waiting += [line_of(LEFT_OUT, {"count": self._left_out})] if self._left_out else []
                self._waiting += [line_of(kind, facts)] if kind is not None else []
            self._is_over = True
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
                    if identity_of(self._descriptor) != self._file:
                        return
                    line = line[os.write(self._descriptor, line) :]
            except OSError:  # nobody reads any more
                return
            with self._changed:
                self._waiting.popleft()


def identity_of(descriptor: int) -> tuple[int, int]:
    """Return which file, pipe or socket a descriptor is of; raises `OSError`."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def line_of(kind: str, facts: Json) -> bytes:
    """Return a line; long texts are cut, and what is no JSON is told by its `repr`."""
    try:
        return _line(kind, {name: cut(fact) for name, fact in facts.items()})
    except (TypeError, ValueError, RecursionError):  # keys that are no texts, what holds itself, what is too deep
        return _line(kind, {name: _flat(fact) for name, fact in facts.items()})


def cut(fact: Any) -> Any:
    """Return it with the beginnings of the texts in it that are too long."""
    if isinstance(fact, str) and len(fact) > TEXT_MAX_CHARS:
        return f"{fact[:TEXT_MAX_CHARS]}\n[{len(fact) - TEXT_MAX_CHARS} more characters]"
    if isinstance(fact, (list, tuple)):
        return [cut(one) for one in fact]
    if isinstance(fact, dict):
        return {key: cut(one) for key, one in fact.items()}
    return fact


def _line(kind: str, facts: Json) -> bytes:
    return (json.dumps({"type": kind, **facts}, default=_repr) + "\n").encode()


def _flat(fact: Any) -> Any:
    if isinstance(fact, (list, tuple)):
        return [_repr(one) for one in fact]
    return fact if fact is None or isinstance(fact, (str, int, float)) else _repr(fact)


def _repr(fact: Any) -> str:
    """Return how an object shows itself, which is its user's own code."""
    try:
        return str(cut(repr(fact)))
    except Exception:  # noqa: BLE001  whatever that raises, its agent goes on
        return object.__repr__(fact)
