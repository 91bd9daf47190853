"""What a snapshot may hold, and how names are written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from gym_bus.errors import Permanent

PRINTABLE: Final = "/ !\"#$&'()*+,:;<=>?@[\\]^_`{|}~-."


class TooLarge(Permanent):
    """A directory holds more than a snapshot may."""


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """`files` counts everything with a name, `bytes` content (holes of sparse files too), `depth` directories in each other."""

    files: int = 200_000
    bytes: int = 8 * 1024**3
    depth: int = 256


def written(name: bytes) -> str:
    """Return a name as text that gives it back."""
    return quote_from_bytes(name, safe=PRINTABLE)


def read_back(text: str) -> bytes:
    """Return the name that was written as `text`."""
    return unquote_to_bytes(text)
