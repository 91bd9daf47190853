"""What the gateway sends calls to: a backend of one dialect that takes a body and gives bytes back, whole or as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from providers.dialects.base import Dialect, Malformed
from providers.dialects.json_text import strictly
from providers.models.base import Target
from providers.models.failures import failed, shown
from schemas.tokens import LogprobKind

ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024
PASSED_ON: Final = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})
"""Headers of a client that go to a backend of its own dialect."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A backend's answer whose body is still coming.

    `queue_s` is how long the call waited for its turn to be sent, in seconds; `cost_usd` is the backend's own word, in its headers.
    """

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]
    queue_s: float | None = None
    cost_usd: float | None = None

    async def body(self) -> bytes:
        """Return the whole body; raises `ModelError` if it is too large."""
        pieces, size = [], 0
        async for chunk in self.chunks:
            size += len(chunk)
            if size > ANSWER_MAX_BYTES:
                raise failed("provider_bad_answer", f"an answer of more than {ANSWER_MAX_BYTES:,} bytes", terminal=True)
            pieces.append(chunk)
        return b"".join(pieces)


def object_of(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a body in UTF-8; raises `Malformed` for anything else, such as numbers that JSON has no word for."""
    try:
        body = strictly(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        msg = f"no JSON: {shown(content.decode(errors='replace'))}"
        raise Malformed(msg) from error
    if not isinstance(body, dict):
        msg = f"no JSON object: {shown(content.decode(errors='replace'))}"
        raise Malformed(msg)
    return body


class Backend(Protocol):
    """One model of one provider."""

    @property
    def dialect(self) -> Dialect:
        """Return what it speaks."""
        ...

    @property
    def url(self) -> str:
        """Return what it is called in messages."""
        ...

    @property
    def max_tries(self) -> int:
        """Return how often a call may be tried."""
        ...

    @property
    def target(self) -> Target:
        """Return where the next try goes."""
        ...

    @property
    def logprob_kind(self) -> LogprobKind | None:
        """Return which log-probabilities come with token ids, if the backend is asked for token ids; None if it is not."""
        ...

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with the model's own name, and what the configuration lays over it."""
        ...

    def open(
        self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Incoming]:
        """Send a call; the context holds its connection. Raises `ModelError` for every failure without an HTTP status."""
        ...

    def without_key(self, text: str) -> str:
        """Return `text` without what nobody may see of it: the backend's key."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...
