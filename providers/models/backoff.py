"""How long to wait before a model is asked again."""

from __future__ import annotations

import hashlib
from typing import Final

BACKOFF_S: Final = 0.5
BACKOFF_MAX_S: Final = 8.0
RETRY_AFTER_MAX_S: Final = 60.0


def backoff_s(tries: int, call_id: str, wish_s: float | None) -> float:
    """Return the wait after the failed try number `tries`: doubling, bounded, spread by a hash of the call's id."""
    if wish_s is not None:
        return min(max(wish_s, 0.0), RETRY_AFTER_MAX_S)
    spread = 0.5 + hashlib.sha256(call_id.encode()).digest()[0] / 256
    return round(min(BACKOFF_S * 2.0 ** (tries - 1), BACKOFF_MAX_S) * spread, 3)
