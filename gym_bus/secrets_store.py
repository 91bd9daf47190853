"""Secrets by name, as files that only this user can read.

The log holds names only; whoever needs a value (the process that calls a model) reads it here, and every process that
writes to the log masks all values it knows of.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

from gym_bus.errors import Permanent
from schemas.ids import TOKEN


class SecretsStore:
    """The secrets of one data directory: `<directory>/<name>`, 0600 in a 0700 directory."""

    def __init__(self, directory: Path) -> None:
        """Keep secrets under `directory`, which is made when the first one is stored."""
        self._directory = directory

    def store(self, value: str) -> str:
        """Keep `value` and return its name, which is the same for the same value and tells nothing about it."""
        self._checked(value)
        name = "s" + hashlib.sha256(b"gym-bus secret\0" + self._salt() + value.encode()).hexdigest()[:24]
        if (self._directory / name).exists() and self.read(name) != value:  # it was replaced: the old value is back
            self.replace(name, value)
        self._write(self._directory / name, value.encode())
        return name

    def replace(self, name: str, value: str) -> None:
        """Put another value under a name that exists: a key was wrong or has run out."""
        self.read(name)
        self._checked(value)
        temporary = self._directory / f".new-{secrets.token_hex(8)}"
        self._write(temporary, value.encode())
        temporary.replace(self._directory / name)

    def read(self, name: str) -> str:
        """Return the value of `name`; raises `Permanent` if there is none."""
        path = self._directory / name
        if not TOKEN.fullmatch(name) or not path.is_file():
            msg = f"no secret {name!r} under {self._directory}: give the key again to a new run, with --model-api-key"
            raise Permanent(msg)
        return path.read_text(encoding="utf-8")

    def all_values(self) -> list[str]:
        """Return every value there is, for whoever masks them."""
        if not self._directory.is_dir():
            return []
        return [
            path.read_text(encoding="utf-8") for path in sorted(self._directory.iterdir()) if TOKEN.fullmatch(path.name)
        ]

    @staticmethod
    def _checked(value: str) -> None:
        if not value or value != value.strip() or not value.isprintable():
            msg = "a secret must be one line without spaces around it: is the variable or the option what you meant?"
            raise Permanent(msg)

    def _salt(self) -> bytes:
        """Return what makes names useless for guessing values: random, made once per directory."""
        path = self._directory / ".salt"
        if not path.exists():
            self._write(path, secrets.token_bytes(16))
        return path.read_bytes()

    def _write(self, path: Path, content: bytes) -> None:
        """Put a file in place whole; the first one there stays."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._directory / f".new-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return
        finally:
            temporary.unlink(missing_ok=True)
