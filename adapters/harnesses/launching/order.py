"""What is to be run: the file `order` that the supervisor reads in the machine, and removes as soon as it has."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from schemas.base import Frozen
from schemas.values import Seconds

LAUNCH_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
ORDER_MAX_BYTES: Final = 4 * 1024 * 1024
MIB: Final = 1024 * 1024
STDOUT_MAX_BYTES: Final = 32 * MIB
Path = Annotated[str, Field(pattern="^/")]


class Brought(Frozen):
    """A file of the machine, that only its user reads; with mode 0700 it can be run."""

    path: Path
    content: str
    mode: Literal[0o600, 0o700] = 0o600


class Order(Frozen):
    """One command. `environment` is all that it finds in its own, beside our marks; `stdin` is a file there, None is nothing.

    `cwd` is made, and `files` are written, before it begins. After `timeout_s` everything it started gets TERM and, `grace_s` later,
    KILL. Of each stream the first bytes are kept.
    """

    launch_id: str
    argv: tuple[Annotated[str, Field(max_length=131_071)], ...] = Field(min_length=1, max_length=1024)
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(max_length=1024)
    cwd: Path
    timeout_s: Seconds
    grace_s: float = Field(default=5, ge=0, le=600)
    stdin: Path | None = None
    files: tuple[Brought, ...] = ()
    stdout_max_bytes: int = Field(default=STDOUT_MAX_BYTES, ge=0)
    stderr_max_bytes: int = Field(default=1 * MIB, ge=0)

    @field_validator("launch_id")
    @classmethod
    def _is_a_name(cls, launch_id: str) -> str:
        """Refuse what is no file's name: the launch's directory is called so."""
        if not LAUNCH_ID.fullmatch(launch_id):
            msg = "launch_id is letters, digits, `_`, `.` and `-`, 128 at most"
            raise ValueError(msg)
        return launch_id

    def written(self) -> bytes:
        """Return the order as the supervisor reads it: the length of its texts, the texts with NULs between them, what the files hold.

        Raises `ValueError` beyond `ORDER_MAX_BYTES`, or for a NUL, which no process can be given.
        """
        contents = [file.content.encode() for file in self.files]
        texts = [
            *map(str, (self.launch_id, self.cwd, self.stdin or "", self.timeout_s, self.grace_s)),
            *map(str, (self.stdout_max_bytes, self.stderr_max_bytes, len(self.files), len(self.argv))),
        ]
        for file, content in zip(self.files, contents, strict=True):
            texts += [file.path, f"{file.mode:o}", str(len(content))]
        texts += [*self.argv, *(f"{name}={value}" for name, value in self.environment.items())]
        if any("\0" in text for text in texts):
            msg = "no argument, no variable and no path can hold a NUL"
            raise ValueError(msg)
        said = "\0".join(texts).encode()
        content = b"\0".join((str(len(said)).encode(), said + b"".join(contents)))
        if len(content) > ORDER_MAX_BYTES:
            msg = f"an order has at most {ORDER_MAX_BYTES:,} bytes, this one {len(content):,}"
            raise ValueError(msg)
        return content
