"""Token ids in memory and as bytes: 8 bytes each, big-endian, so that a digest means the same everywhere."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Iterable
from typing import Final

DOMAIN: Final = b"gym-bus token ids\x01"


def ids_of(tokens: Iterable[int]) -> array[int]:
    """Return tokens packed; raises `OverflowError` for what fits no 64 bits, `TypeError` for what is no integer."""
    return array("q", tokens)


def digest_of(ids: array[int]) -> str:
    """Return the SHA-256 (hex) over a domain, the count and the ids."""
    packed = array("q", [len(ids), *ids])
    if sys.byteorder == "little":
        packed.byteswap()
    return hashlib.sha256(DOMAIN + packed.tobytes()).hexdigest()


def shared_length(one: array[int], other: array[int]) -> int:
    """Return how many ids two lists begin with in common."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    low, high = 0, most  # the first `low` are equal; the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
