"""What is to be run: the file `order` that the supervisor reads in the machine, and removes as soon as it has."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field, field_validator

from schemas.base import Frozen
from schemas.values import Seconds

LAUNCH_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
ORDER_MAX_BYTES: Final = 4 * 1024 * 1024
MIB: Final = 1024 * 1024
STDOUT_MAX_BYTES: Final = 32 * MIB


class Order(Frozen):
    """One command. `environment` is all that it finds in its own, beside our marks; `stdin` is a file there, None is nothing.

    After `timeout_s` everything it started gets TERM and, `grace_s` later, KILL. Of each stream the first bytes are kept.
    """

    launch_id: str
    argv: tuple[Annotated[str, Field(max_length=131_071)], ...] = Field(min_length=1, max_length=1024)
    environment: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = Field(max_length=1024)
    cwd: str = Field(pattern="^/")
    timeout_s: Seconds
    grace_s: float = Field(default=5, ge=0, le=600)
    stdin: str | None = Field(default=None, pattern="^/")
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
        """Return the file's content: texts with NULs between them, the lengths of both lists known from the count of arguments.

        Raises `ValueError` beyond `ORDER_MAX_BYTES`, or for a NUL, which no process can be given.
        """
        limits = (self.stdout_max_bytes, self.stderr_max_bytes)
        head = (self.launch_id, self.cwd, self.stdin or "", self.timeout_s, self.grace_s, *limits, len(self.argv))
        texts = [*map(str, head), *self.argv, *(f"{name}={value}" for name, value in self.environment.items())]
        if any("\0" in text for text in texts):
            msg = "no argument, no variable and no path can hold a NUL"
            raise ValueError(msg)
        content = "\0".join(texts).encode()
        if len(content) > ORDER_MAX_BYTES:
            msg = f"an order has at most {ORDER_MAX_BYTES:,} bytes, this one {len(content):,}"
            raise ValueError(msg)
        return content
