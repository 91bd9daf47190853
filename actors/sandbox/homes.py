"""What an agent's own program keeps for itself, outside of the workspace: packed in the machine, unpacked in the one that follows.

Packing and unpacking run in the machine, as the user that commands run as: what an agent has put there can mislead nobody else.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from pathlib import Path
from typing import Any, Final

from adapters.harnesses.asking import FILE_MIB, HOME
from adapters.harnesses.launching.launch import PYTHON
from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent, Retryable
from providers.sandboxes.base import Box
from providers.sandboxes.capabilities import WithFiles
from providers.sandboxes.processes import with_usual_path
from schemas.values import BlobRef

MEDIA_TYPE: Final = "application/gzip"
HOME_MAX_BYTES: Final = FILE_MIB * 1024 * 1024
"""Of the packed form, which is one file in the machine."""
DONE_WITHIN_S: Final = 300.0
PACKED: Final = f"{HOME}.packed"
PACK: Final = """
import os, sys, tarfile
where, packed = sys.argv[1:]
os.makedirs(where, mode=0o700, exist_ok=True)
with tarfile.open(packed, "w:gz", compresslevel=1) as pack:
    pack.add(where, arcname=".")
"""
UNPACK: Final = """
import os, sys, tarfile
where, packed = sys.argv[1:]
os.makedirs(where, mode=0o700, exist_ok=True)
with tarfile.open(packed, "r:gz") as pack:
    pack.extractall(where)
"""


async def keep_home(box: Box, blobs: Blobs, key: str) -> BlobRef:
    """Store the program's own files; raises `TooLarge`, `BoxLost`, `Permanent`, and `Retryable` if they could not be packed."""
    able = _able(box)
    with tempfile.TemporaryDirectory(prefix="gym-bus-home-") as directory:
        target = Path(directory) / "home"
        try:
            await _run(box, PACK, f"{key}/pack")
            await able.get(PACKED, target, max_bytes=HOME_MAX_BYTES)
        finally:
            await box.exec(with_usual_path(f"rm -f {PACKED}"), key=f"{key}/packed", timeout_s=DONE_WITHIN_S)
        return await asyncio.to_thread(lambda: blobs.put(target.read_bytes(), MEDIA_TYPE))


async def restore_home(box: Box, ref: BlobRef, blobs: Blobs, key: str) -> None:
    """Make the program's own files again in a new machine; raises `BoxLost`, `Corrupt`, `Permanent`, `Retryable`."""
    able = _able(box)
    with tempfile.TemporaryDirectory(prefix="gym-bus-home-") as directory:
        source = Path(directory) / "home"
        await asyncio.to_thread(lambda: source.write_bytes(blobs.get(ref)))
        await able.put(source, PACKED, mode=0o600)
    await _run(box, UNPACK, f"{key}/unpack")
    await box.exec(with_usual_path(f"rm -f {PACKED}"), key=f"{key}/unpacked", timeout_s=DONE_WITHIN_S)


async def _run(box: Box, script: str, key: str) -> None:
    words = (PYTHON, "-I", "-c", script, HOME, PACKED)
    done = await box.exec(with_usual_path(shlex.join(words)), key=key, timeout_s=DONE_WITHIN_S)
    if done.exit_code != 0:
        raise Retryable(f"the agent's own files ({HOME}) could not be packed or unpacked: {done.output.strip()[-300:]}")


def _able(box: Box) -> Any:
    if not isinstance(box, WithFiles):
        msg = "the agent's own files cannot be kept in this type of sandbox: choose another `sandbox.type`"
        raise Permanent(msg)
    return box
