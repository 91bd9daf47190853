"""Large content outside the log, named by its SHA-256 and written before the event that names it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol

from gym_bus.errors import Corrupt, Retryable
from schemas.values import BlobRef


class Blobs(Protocol):
    """A content-addressed store. Blocking; call it from a thread for anything large."""

    def put(self, content: bytes, media_type: str = "application/octet-stream") -> BlobRef:
        """Store `content` durably and return its name."""
        ...

    def get(self, ref: BlobRef) -> bytes:
        """Return the content of `ref`; raises `Corrupt` if it is missing or differs."""
        ...


class DirectoryBlobs:
    """Blobs as files `<root>/<aa>/<sha256>`, written to a temporary name, fsynced and renamed."""

    def __init__(self, root: Path) -> None:
        """Keep blobs under `root`, which is made when needed."""
        self._root = root

    def _path(self, sha256: str) -> Path:
        return self._root / sha256[:2] / sha256

    def put(self, content: bytes, media_type: str = "application/octet-stream") -> BlobRef:
        """Store `content`; storing it twice changes nothing. Raises `Retryable` if the disk refuses."""
        ref = BlobRef(sha256=hashlib.sha256(content).hexdigest(), size=len(content), media_type=media_type)
        path = self._path(ref.sha256)
        if path.exists():
            return ref
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(path)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
        except OSError as error:
            msg = f"blob of {ref.size} bytes could not be written under {self._root}: {error.strerror}"
            raise Retryable(msg) from error
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """Return the content of `ref`, checked against its name."""
        path = self._path(ref.sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError as error:
            msg = f"blob {ref.sha256} ({ref.size} bytes) is named by the log but missing under {self._root}"
            raise Corrupt(msg) from error
        if hashlib.sha256(content).hexdigest() != ref.sha256:
            msg = f"blob {path} does not have the content its name says: restore it from a copy"
            raise Corrupt(msg)
        return content


class MemoryBlobs:
    """Blobs in a dictionary, for tests."""

    def __init__(self) -> None:
        """Start empty."""
        self._content: dict[str, bytes] = {}

    def put(self, content: bytes, media_type: str = "application/octet-stream") -> BlobRef:
        """Store `content`."""
        ref = BlobRef(sha256=hashlib.sha256(content).hexdigest(), size=len(content), media_type=media_type)
        self._content[ref.sha256] = content
        return ref

    def get(self, ref: BlobRef) -> bytes:
        """Return the content of `ref`."""
        if ref.sha256 not in self._content:
            msg = f"blob {ref.sha256} is missing"
            raise Corrupt(msg)
        return self._content[ref.sha256]
