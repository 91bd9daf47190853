"""From tokens to an answer: characters put together, stop strings found, the end told."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from providers.models.local_runtime import Draw, Runtime, Token


@dataclass(frozen=True, slots=True)
class Wish:
    """What an answer must be like: at most `max_tokens` long, ended before any of `stop` would be in it."""

    draw: Draw
    max_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """More of an answer: a token, and the words that are certain by now. The last one says why it ends; it may have no token."""

    token: Token | None
    text: str
    end: Literal["stop", "length"] | None = None
    stop_string: str | None = None


@dataclass
class _Words:
    """Makes text of tokens; keeps back what may be the beginning of a stop string, or less than a character."""

    stop: tuple[str, ...]
    found: str | None = None
    _held: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, piece: bytes, *, is_last: bool = False) -> str:
        """Return the words that are certain now."""
        self._held += self._decoder.decode(piece, final=is_last)
        places = [(place, text) for text in self.stop if (place := self._held.find(text)) >= 0]
        if places:
            place, self.found = min(places, key=lambda one: (one[0], -len(one[1])))
            certain, self._held = self._held[:place], ""
            return certain
        kept = 0 if is_last else max((_overlap(self._held, text) for text in self.stop), default=0)
        cut = len(self._held) - kept
        certain, self._held = self._held[:cut], self._held[cut:]
        return certain


def _overlap(text: str, stop: str) -> int:
    """Return how many of the last characters of `text` are the first ones of `stop`."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)


async def generate(runtime: Runtime, prompt: Sequence[int], wish: Wish) -> AsyncGenerator[Piece]:
    """Yield an answer piece by piece; the last has an `end`."""
    words = _Words(tuple(filter(None, wish.stop)))
    generated: list[int] = []
    while len(generated) < wish.max_tokens:
        token = await runtime.next_token(prompt, generated, wish.draw)
        generated.append(token.id)
        text = words.feed(token.piece, is_last=token.is_end)
        is_over = token.is_end or words.found is not None
        yield Piece(token, text, "stop" if is_over else None, words.found)
        if is_over:
            return
    text = words.feed(b"", is_last=True)
    yield Piece(None, text, "length" if words.found is None else "stop", words.found)
