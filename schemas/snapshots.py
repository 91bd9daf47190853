"""A snapshot of a directory: what is in it, by name, and where its content lies."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Frozen
from schemas.values import BlobRef


class Piece(Frozen):
    """A part of a file's content: `length` bytes from `offset` of the snapshot's pack number `pack`."""

    pack: int = Field(ge=0)
    offset: int = Field(ge=0)
    length: int = Field(ge=0)


class Stamp(Frozen):
    """By what a file is known not to have changed since: its inode and the time of its last change, which no program can set."""

    inode: int
    changed_ns: int


class Entry(Frozen):
    """A file, a directory, a symbolic link, or a further name (`hard`) of a file that stands before it.

    `path` is relative; bytes that are no printable ASCII are %XX. `target` is written the same way: what a link says, or the path
    of the file that has this further name. Times are nanoseconds since 1970. `was_changing` if it was written to meanwhile.
    """

    path: str
    kind: Literal["file", "directory", "link", "hard"]
    mode: int = Field(ge=0, le=0o777)
    modified_ns: int
    size: int = Field(default=0, ge=0)
    sha256: str | None = None
    pieces: tuple[Piece, ...] = ()
    target: str | None = None
    stamp: Stamp | None = None
    was_changing: bool = False


class LeftOut(Frozen):
    """Something that a snapshot cannot hold, could not read, or that was another kind of thing at each look.

    Links are left out of a selection of files only.
    """

    path: str
    reason: Literal["device", "pipe", "socket", "unreadable", "changing", "link"]


class Manifest(Frozen):
    """All of a snapshot but its content, which is in `packs`; those of earlier snapshots are shared with them."""

    version: Literal[1] = 1
    packs: tuple[BlobRef, ...]
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()
