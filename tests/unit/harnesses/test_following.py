"""A session file is followed as it grows; one that is not what it was is read anew, and that is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from adapters.harnesses.base import Trace
from adapters.harnesses.launching import Launch
from adapters.harnesses.readers import LineReader, Record
from adapters.harnesses.running import REPLACED_MAX, Following, Place
from adapters.harnesses.trajectory import Item, Said


class FileLaunch:
    """A launch with one file, which is whatever `content` is now."""

    def __init__(self) -> None:
        self.content = b""

    async def read(self, _pattern: str, offset: int, *, max_bytes: int) -> bytes:
        """Return a part of it, as `Launch.read`."""
        return self.content[offset : offset + max_bytes]


def _said(record: Record) -> Iterable[Item]:
    return [Said("assistant", record["text"])]


def lines(*texts: str) -> bytes:
    return b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


def texts(items: Iterable[Any]) -> list[str]:
    return [item.text for item in items]


def following(launch: FileLaunch, place: Place | None = None) -> Following:
    return Following(cast("Launch", launch), Trace("/s/*.jsonl", lambda: LineReader(_said)), place)


OLD, NEW = [f"old {number}" for number in range(8)], [f"new {number}" for number in range(7)]


@pytest.mark.parametrize(
    "new", [NEW, ["new, which is longer " * 40, *NEW[1:]], NEW[:1]], ids=["shorter", "longer", "short"]
)
async def test_a_file_that_is_another_one_is_read_from_its_beginning(new: list[str]) -> None:
    """Its path is the same, or another that the glob finds: nothing of it is left out, and that there was another is counted."""
    launch = FileLaunch()
    reads = following(launch)
    launch.content = lines(*OLD)
    told = texts(await reads.more())
    launch.content = lines(*new)
    for _ in range(4):
        told += texts(await reads.more())
    launch.content += lines("and more")
    told += texts(await reads.rest())
    assert told == [*OLD, *new, "and more"]
    assert (reads.reader.faults.replaced, reads.reader.faults.total, reads.is_cut) == (1, 1, False)


async def test_it_is_found_out_at_the_end_too() -> None:
    launch = FileLaunch()
    reads = following(launch)
    launch.content = lines(*OLD)
    told = texts(await reads.more())
    launch.content = lines(*NEW)
    told += texts(await reads.rest())
    assert (told, reads.reader.faults.total) == ([*OLD, *NEW], 1)


async def test_a_file_that_is_gone_is_counted() -> None:
    """What it held beyond what was read is not known."""
    launch = FileLaunch()
    reads = following(launch)
    launch.content = lines(*OLD)
    assert texts(await reads.more()) == OLD
    launch.content = b""
    assert await reads.rest() == []
    assert reads.reader.faults.total == 1


async def test_a_file_that_is_written_anew_as_it_was_goes_on() -> None:
    """A look that falls between its being emptied and being written counts nothing, and tells nothing twice."""
    launch = FileLaunch()
    reads = following(launch)
    launch.content = lines(*OLD[:4])
    told = texts(await reads.more())
    launch.content = lines(*OLD[:1])
    told += texts(await reads.more())
    launch.content = lines(*OLD[:6])
    told += texts(await reads.more())
    launch.content = b""
    told += texts(await reads.more())
    launch.content = lines(*OLD)
    told += texts(await reads.rest())
    assert (told, reads.reader.faults.total) == (OLD, 0)


async def test_a_line_that_was_cut_is_not_joined_to_another_files() -> None:
    launch = FileLaunch()
    reads = following(launch)
    launch.content = lines(*OLD)[:-5]
    told = texts(await reads.more())
    launch.content = lines(*NEW)
    told += texts(await reads.rest())
    assert told == [*OLD[:-1], *NEW]
    assert (reads.reader.faults.replaced, reads.reader.faults.cut, reads.reader.faults.total) == (1, 1, 2)


async def test_a_session_that_goes_on_in_another_file() -> None:
    """Up to where it was told says nothing of a file that does not begin like it."""
    launch, before = FileLaunch(), lines(*OLD)
    launch.content = before + lines("on")
    goes_on = following(launch, Place(len(before), before[-100:]))
    assert texts(await goes_on.rest()) == ["on"]
    assert goes_on.reader.faults.total == 0
    launch.content = lines(*NEW)
    other = following(launch, Place(len(before), before[-100:]))
    assert texts(await other.rest()) == NEW
    assert other.reader.faults.replaced == 1


async def test_what_is_replaced_without_end_is_cut() -> None:
    class Restless(FileLaunch):
        async def read(self, _pattern: str, offset: int, *, max_bytes: int) -> bytes:
            self.content = str(len(self.content) % 2).encode() * (len(self.content) % 2 + 1)
            return await super().read(_pattern, 0, max_bytes=max_bytes + offset)

    reads = following(Restless())
    assert await reads.rest() == []
    assert reads.is_cut
    assert reads.reader.faults.replaced == REPLACED_MAX


@pytest.mark.parametrize("line", [b"{}\n", b"x\n", b'{"text": "a"}\n'])
async def test_many_short_lines_hold_up_nobody(line: bytes) -> None:
    """A MiB of them is understood beside whatever else its process has to do: to say that it is alive, before all."""
    turns, launch = 0, FileLaunch()
    launch.content = line * (1024 * 1024 // len(line))
    followed = following(launch)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(others())
        await followed.next_piece()
        task.cancel()
    assert turns > 10
