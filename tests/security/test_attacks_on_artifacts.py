"""What an agent makes of the files that are taken from it: not what they seem to be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gym_bus.blobs import MemoryBlobs
from providers.sandboxes.snapshots import take
from providers.sandboxes.snapshots.selecting import Selection
from tests.support.attacked import RedAgent, room_of

PLAIN: dict[str, dict[str, str]] = {
    "symlink": {},
    "hard link": {},
    "dot dot": {"a": "directory"},
    "pipe": {},
    "device": {},
    "bomb": {"out": "file"},
    "sparse": {"out": "file"},
}
"""What is taken besides the answer."""


@pytest.mark.parametrize("what", ["symlink", "hard link", "dot dot", "pipe", "device", "bomb", "sparse"])
async def test_what_is_no_plain_file_does_not_become_an_artifact(red: RedAgent, what: str, tmp_path: Path) -> None:
    """3: of an agent's files that are asked for by pattern only plain ones are taken, and of what is inside, nothing else."""
    (tmp_path / "secret").write_text("a secret of this host")
    made = {
        "symlink": f"ln -s {tmp_path}/secret out && ln -s /etc/passwd out2 && ln -s / out3",
        "hard link": "ln /bin/sh out || ln /run/shell out || ln /etc/passwd out",
        "dot dot": "mkdir -p a && ln -s ../../.. a/out && ln -s .. out",
        "pipe": "mkfifo out",
        "device": "mknod out c 1 5 || mknod out b 7 0 || cp -a /dev/zero out",
        "bomb": "i=0; while [ $i -lt 300 ]; do ln -s out$i out$((i + 1)); i=$((i + 1)); done; : >real; ln real out",
        "sparse": "dd if=/dev/null of=out bs=1 seek=8000000000000 || truncate -s 8000G out",
    }[what]
    await red.run(f"echo good >answer.txt; {made}")
    blobs, only = MemoryBlobs(), Selection(["answer.txt", "out*", "a/**"])
    taken = await asyncio.wait_for(asyncio.to_thread(take, room_of(red.box).work, blobs, only=only), 20)
    kinds = {entry.path: entry.kind for entry in taken.manifest.entries}
    assert kinds.pop("answer.txt") == "file"
    assert kinds == PLAIN[what]
    assert taken.read_bytes < 70 * 1024 * 1024
    assert not [content for content in blobs._content.values() if b"a secret of this host" in content]
    assert {one.reason for one in taken.manifest.left_out} <= {"link", "pipe", "device"}
