"""A streamed answer on its way to a client: each event is read for the record and goes on at once, as it came or rewritten."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Final

from gym_bus.clock import Clock
from providers.dialects import Dialect, Malformed, StreamWriter
from providers.dialects.folding import Folding
from providers.dialects.sound import check_says_something, sound
from providers.dialects.sse import EventSplitter, ServerEvent
from providers.models.backends import ANSWER_MAX_BYTES, object_of
from providers.models.token_reading import TokenReading
from schemas.conversation import Delta, Part, PartGrew, Reply, ReplyBroke

DONE: Final = "[DONE]"
AT_ONCE: Final = 8
"""Events that are read without a pause: reading a whole answer takes milliseconds, for which the first words of others would wait."""


PLAIN: Final = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})


def _says_only_usage(data: str) -> bool:
    try:
        chunk = json.loads(data)
    except (ValueError, RecursionError):
        return False
    is_usage = isinstance(chunk, dict) and chunk.get("choices") == [] and chunk.get("usage") is not None
    return is_usage and not chunk.keys() - PLAIN


class Relay:
    """See the module. From the event that ends the answer on, everything is held until `end`."""

    def __init__(
        self,
        backend: Dialect,
        writer: StreamWriter | None,
        clock: Clock,
        tokens: TokenReading | None = None,
        *,
        hides_usage: bool = False,
        is_usage_asked: bool = False,
    ) -> None:
        """Read `backend`'s events, and with `tokens` what they say of tokens; `writer` rewrites them, None passes their bytes on.

        With `hides_usage`, a chunk of Chat Completions that says only what the answer cost is not passed on; `is_usage_asked` says
        that the backend was asked for it.
        """
        self.first_at: float | None = None
        self._reader = backend.stream_reader(is_usage_asked=is_usage_asked)
        self._splitter = EventSplitter()
        self._folding = Folding(backend.name)
        self._writer = writer
        self._clock = clock
        self._tokens = tokens
        self._hides_usage = hides_usage
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Yield what goes to the client now that `chunk` has come, and None where others may have their turn; raises `Malformed`.

        Of what comes with the first word of an answer, that word is yielded before the rest is read.
        """
        self._size += len(chunk)
        if self._size > ANSWER_MAX_BYTES:
            msg = f"an answer of more than {ANSWER_MAX_BYTES:,} bytes"
            raise Malformed(msg)
        ready: list[bytes] = []
        for number, event in enumerate(self._splitter.feed(chunk), 1):
            was_silent = self.first_at is None
            ready += self._pieces(event)
            if was_silent and self.first_at is not None and ready:
                yield b"".join(ready)
                yield None
                ready = []
            elif number % AT_ONCE == 0:
                yield None
        if ready:
            yield b"".join(ready)

    def _pieces(self, event: ServerEvent) -> list[bytes]:
        """Return what of an event goes to the client now; from the answer's end on it is held."""
        pieces = [self._rewritten(delta) for delta in self._reader.feed(event.name, event.data)]
        if self._tokens and event.data != DONE:
            with contextlib.suppress(Malformed):  # a ping, which the reader has passed over too
                self._tokens.feed(object_of(event.data.encode()))
        if self._writer is None:
            is_hidden = self._hides_usage and not pieces and _says_only_usage(event.data)
            pieces = [] if is_hidden else [event.raw]
        if self._folding.is_whole or self._held or event.data == DONE:
            self._held.extend(pieces)
            return []
        return pieces

    def end(self) -> bytes:
        """Return what was held, when nothing more comes; raises `Malformed` if the answer is not whole."""
        if self._splitter.is_torn:
            msg = "the stream was cut in the middle of an event"
            raise Malformed(msg)
        pieces = [self._rewritten(delta) for delta in self._reader.end()]
        if self._writer is not None:
            self._held += pieces
        if not self._folding.is_whole:
            msg = "the stream ended before its answer did"
            raise Malformed(msg)
        check_says_something(self._folding.reply())
        return b"".join(self._held)

    @property
    def is_ending(self) -> bool:
        """Return whether it is known why the answer ended: whoever leaves now may have read it all."""
        return self._reader.is_ending

    @property
    def is_whole(self) -> bool:
        """Return whether nothing of the answer can follow."""
        return self._folding.is_whole

    def reply(self) -> Reply:
        """Return the whole answer; raises `Malformed` for one that cannot be recorded."""
        return sound(self._folding.reply())

    def said(self) -> tuple[Part, ...]:
        """Return what has come of the answer."""
        try:
            return sound(self._folding.reply()).parts
        except Malformed:
            return ()

    def _rewritten(self, delta: Delta) -> bytes:
        """Take a delta in; return it in the client's words. Raises `Malformed` for a backend's word that it failed."""
        self._folding.add(delta)
        if self.first_at is None and isinstance(delta, PartGrew):
            self.first_at = self._clock.monotonic()
        if isinstance(delta, ReplyBroke):
            raise Malformed(f"{delta.code}: {delta.message}" if delta.code else delta.message)
        return self._writer.write(delta) if self._writer else b""
