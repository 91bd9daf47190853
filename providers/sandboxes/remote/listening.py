"""What a command in a machine says: its output, and the lines with a nonce that say how it stands."""

from __future__ import annotations

from collections.abc import Callable

from providers.sandboxes.output import BoundedOutput, Output
from providers.sandboxes.remote.scripts import BEGAN


class Listener:
    """Takes apart what `scripts.run` prints. `on_begin` is called when the command begins."""

    def __init__(self, nonce: str, limit: int, on_begin: Callable[[], None]) -> None:
        self._nonce = nonce.encode()
        self._output = BoundedOutput(limit)
        self._held = b""
        self._on_begin = on_begin
        self.has_begun = False
        self.trouble: str | None = None
        self.exit_code: int | None = None

    def hear(self, data: bytes) -> bool:
        """Take the next bytes; return whether there is nothing more to wait for."""
        self._held += data
        if not self.has_begun and not self._begin():
            return self.trouble is not None
        mark = b"\n" + self._nonce + b" "
        place = self._held.find(mark)
        if place < 0:
            kept = len(mark) - 1
            self._output.feed(self._held[:-kept])
            self._held = self._held[-kept:]
            return False
        code, newline, _ = self._held[place + len(mark) :].partition(b"\n")
        if not newline:
            self._output.feed(self._held[:place])
            self._held = self._held[place:]
            return False
        self._output.feed(self._held[:place])
        self._held = b""
        self.exit_code = int(code) if code.isdigit() else None
        return True

    def output(self) -> Output:
        """Return what the command printed, also if it was cut short."""
        if self.has_begun:
            self._output.feed(self._held)
        self._held = b""
        return self._output.result()

    def said(self) -> str:
        """Return what was said before anything began: the words of a shell or a maker that could not do it."""
        return self._held.decode(errors="replace").strip()[:500]

    def _begin(self) -> bool:
        """Look for the first line of ours; what stands before it is a login shell's own, and nobody's output."""
        before, mark, rest = self._held.partition(self._nonce + b" ")
        first, newline, after = rest.partition(b"\n")
        if not mark or not newline or (before and not before.endswith(b"\n")):
            return False
        self._held = after
        if first != BEGAN.encode():
            self.trouble = first.decode(errors="replace")
            return False
        self.has_begun = True
        self._on_begin()
        return True
