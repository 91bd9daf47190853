"""Putting files into a machine that its agent did not make: tests, and a task's own solution."""

from __future__ import annotations

import asyncio
import base64
import binascii
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.base import Box
from providers.sandboxes.capabilities import WithFiles
from schemas.tasks import Staged

MODE: Final = 0o755


async def stage(box: Box, place: str, files: Mapping[str, bytes]) -> None:
    """Put `files`, by path below the directory `place`, into a machine; raises `BoxLost`, `Permanent`."""
    if not isinstance(box, WithFiles):
        msg = "this type of sandbox cannot be given files: choose another `sandbox.type`"
        raise Permanent(msg)
    with tempfile.TemporaryDirectory(prefix="gym-bus-staged-") as directory:
        source = Path(directory) / "file"
        for path, content in files.items():
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                msg = f"the file {path!r} must have a path below {place}"
                raise Permanent(msg)
            await asyncio.to_thread(source.write_bytes, content)
            await box.put(source, f"{place}/{path}", mode=MODE)


def contents_of(staged: Staged) -> dict[str, bytes]:
    """Return files as they are to be; raises `Permanent` for what is no base64."""
    try:
        return {path: base64.b64decode(text, validate=True) for path, text in staged.files.items()}
    except binascii.Error as error:
        msg = f"the files for {staged.at} cannot be read: {error}"
        raise Permanent(msg) from error
