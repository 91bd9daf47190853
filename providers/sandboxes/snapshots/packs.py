"""The content of snapshots: many files in one blob, large files in several."""

from __future__ import annotations

import hashlib
from typing import Final

from gym_bus.blobs import Blobs
from schemas.snapshots import Entry, Manifest, Piece
from schemas.values import BlobRef

PACK_BYTES: Final = 16 * 1024 * 1024
MEDIA_TYPE: Final = "application/vnd.gym-bus.pack"


class Packs:
    """Takes content in, gives pieces out; what an earlier snapshot holds already is not stored again."""

    def __init__(self, blobs: Blobs, previous: Manifest | None) -> None:
        """Store in `blobs`; build on `previous`."""
        self._blobs = blobs
        self._previous = previous
        self._refs: list[BlobRef] = []
        self._number_of: dict[str, int] = {}
        self._open = bytearray()
        self._open_number: int | None = None
        self._known: dict[str, Entry] = {}
        self.stored_bytes = 0
        for entry in previous.entries if previous else ():
            if entry.sha256:
                self._known.setdefault(entry.sha256, entry)

    def shared(self, entry: Entry) -> tuple[Piece, ...]:
        """Return the pieces of a file of the previous snapshot, as this one counts its packs."""
        if self._previous is None:
            msg = "there is no previous snapshot to share with"
            raise ValueError(msg)
        return tuple(
            piece.model_copy(update={"pack": self._number(self._previous.packs[piece.pack])}) for piece in entry.pieces
        )

    def add(self, content: bytes) -> tuple[Piece, ...]:
        """Store the next part of a file."""
        pieces: list[Piece] = []
        view = memoryview(content)
        while view:
            if self._open_number is None:
                self._open_number = len(self._refs)
                self._refs.append(BlobRef(sha256="0" * 64, size=0))  # its place; the name follows with its content
            room = PACK_BYTES - len(self._open)
            part, view = view[:room], view[room:]
            pieces.append(Piece(pack=self._open_number, offset=len(self._open), length=len(part)))
            self._open += part
            if len(self._open) >= PACK_BYTES:
                self._close()
        return tuple(pieces)

    def known(self, sha256: str) -> Entry | None:
        """Return a file of the previous snapshot, or of this one, with this content."""
        return self._known.get(sha256)

    def finish(self) -> tuple[BlobRef, ...]:
        """Return all packs, stored."""
        self._close()
        return tuple(self._refs)

    def _number(self, ref: BlobRef) -> int:
        number = self._number_of.get(ref.sha256)
        if number is None:
            number = self._number_of[ref.sha256] = len(self._refs)
            self._refs.append(ref)
        return number

    def _close(self) -> None:
        if self._open_number is not None:
            ref = self._blobs.put(bytes(self._open), MEDIA_TYPE)
            self._refs[self._open_number] = ref
            self.stored_bytes += ref.size
            self._open, self._open_number = bytearray(), None


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()
