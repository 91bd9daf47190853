"""Running an activation: its files go into the machine, it is launched, and what it writes is followed."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.harnesses.base import Plan, Trace
from adapters.harnesses.launching import Brought, Launch, LaunchBox, Order
from adapters.harnesses.launching.launch import READ_MAX_BYTES
from adapters.harnesses.launching.supervisor import FIRST
from adapters.harnesses.lines import Faults
from adapters.harnesses.readers import DOCUMENT_MAX_BYTES, Reader
from adapters.harnesses.trajectory import Complained, Item
from gym_bus.errors import Permanent
from providers.sandboxes.processes import with_usual_path

TRACE_MAX_BYTES: Final = 256 * 1024 * 1024
PUT_WITHIN_S: Final = 30.0
WITH_THE_ORDER_CHARS: Final = 512 * 1024
"""Files that have no more together are written by the supervisor, which is quicker than to bring each."""
TAIL_BYTES: Final = 512
"""So much of what was read last has to be in its place for a file to be the one that was read."""
REPLACED_MAX: Final = 100
AT_ONCE_BYTES: Final = 8 * 1024
"""What is longer is understood in a thread: a MiB may hold half a million lines, and others wait meanwhile."""


async def begin(
    box: LaunchBox, plan: Plan, launch_id: str, *, cwd: str, timeout_s: float, grace_s: float = 5
) -> Launch:
    """Write the plan's files and launch it; it may be repeated, as `Launch.start`. Raises `Permanent`, `BoxLost`."""
    launch = Launch(box, launch_id)
    files = dict(plan.files)
    stdin = None
    if plan.stdin is not None:
        stdin = f"{launch.directory}/stdin"
        files[stdin] = plan.stdin
    brought = [Brought(path=path, content=content) for path, content in files.items()]
    brought += [Brought(path=path, content=content, mode=0o700) for path, content in plan.programs.items()]
    is_small = sum(len(file.content) for file in brought) <= WITH_THE_ORDER_CHARS
    order = Order(
        launch_id=launch_id,
        argv=plan.argv,
        environment=dict(plan.environment),
        cwd=cwd,
        timeout_s=timeout_s,
        grace_s=grace_s,
        stdin=stdin,
        files=tuple(brought) if is_small else (),
    )
    await _copy(box, launch_id, plan.copied)
    if not is_small:
        for file in brought:
            await put_text(box, file.content, file.path, mode=file.mode)
    await launch.start(order)
    return launch


async def _copy(box: LaunchBox, launch_id: str, copied: Mapping[str, str]) -> None:
    for number, (source, place) in enumerate(copied.items()):
        copy = f"mkdir -p {shlex.quote(place)} && cp -R {shlex.quote(source)}/. {shlex.quote(place)}"
        done = await box.exec(with_usual_path(copy), key=f"{launch_id}:copy{number}", timeout_s=PUT_WITHIN_S)
        if done.exit_code != 0:
            raise Permanent(f"launch {launch_id}: {source} cannot be copied: {done.output.strip()[-200:]}")


@dataclass(frozen=True, slots=True)
class Place:
    """Up to where a trace was read, and the last that stands before that."""

    offset: int = 0
    tail: bytes = b""


async def written_before(box: LaunchBox, trace: Trace, key: str) -> Place:
    """Return what a trace holds before the launch: that of a session that is resumed; raises `Permanent`, `BoxLost`."""
    pattern = trace.where.removeprefix(FIRST)
    if not pattern.startswith("/") or trace.is_document:
        return Place()
    step = ":" if pattern == trace.where else "break"
    size = f'wc -c < "$file" && {{ tail -c {TAIL_BYTES} "$file" | od -A n -v -t x1; :; }} 2>/dev/null'
    look = f'for file in {pattern}; do {step}; done; if [ -f "$file" ]; then {size}; else echo 0; fi'
    done = await box.exec(with_usual_path(look), key=f"{key}:before", timeout_s=PUT_WITHIN_S)
    written, _, tail = done.output.strip().partition("\n")
    if done.exit_code != 0 or not written.strip().isdigit():
        raise Permanent(f"{trace.where} cannot be looked at: {done.output.strip()[-200:]}")
    with suppress(
        ValueError
    ):  # an image without `od`, or hardly any output kept: then it is believed to be the same file
        return Place(int(written), bytes.fromhex(tail))
    return Place(int(written))


async def put_text(box: LaunchBox, content: str, path: str, mode: int = 0o600) -> None:
    """Make a file of the machine that only its user reads."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content.encode())
        file.flush()
        await box.put(Path(file.name), path, mode=mode)


class Following:
    """Reads one trace of a launch as it grows. `is_cut` if it grew beyond what is read of it, 256 MiB.

    A file that was written anew, or another one that matches now, is read from its beginning, and counted in `reader.faults`: what
    the one before it held beyond what was read is lost. `is_behind` says that the last piece was a whole one: more may be there.
    """

    def __init__(self, launch: Launch, trace: Trace, place: Place | None = None) -> None:
        """Begin at its beginning, or at `place`; whoever takes over does so as well."""
        self.reader: Reader = trace.reader()
        self.is_cut = False
        self.is_behind = False
        self._launch = launch
        self._trace = trace
        self._place = place or Place()
        self._size = self._place.offset
        self._is_doubtful = False

    async def more(self) -> list[Item]:
        """Return what came since the last time, 1 MiB of the file at most; nothing of a document, which is read at its end."""
        return await self.next_piece() or []

    async def next_piece(self) -> list[Item] | None:
        """Return what the next MiB of the file says, None if there is nothing more of it now, or for a document."""
        if self._trace.is_document or self.is_cut:
            return None
        content = await self._read()
        if content is None and not self._is_doubtful:
            self._is_doubtful = True  # it may just be being written anew, and go on as it was
            return None
        self._is_doubtful = False
        if content is None:
            return await self._begun_anew()
        return await self._understood(content, TRACE_MAX_BYTES) if content else None

    async def rest(self) -> list[Item]:
        """Return all that is left when the launch has ended."""
        limit = DOCUMENT_MAX_BYTES if self._trace.is_document else TRACE_MAX_BYTES
        items: list[Item] = []
        while not self.is_cut and (content := await self._read()) != b"":
            items += await (self._begun_anew() if content is None else self._understood(content, limit))
        return items + await self._end()

    async def _read(self) -> bytes | None:
        """Return what follows what was read, None if that is not there any more."""
        offset, tail = self._place.offset, self._place.tail
        content = await self._launch.read(self._trace.where, offset - len(tail), max_bytes=READ_MAX_BYTES)
        self.is_behind = len(content) == READ_MAX_BYTES
        return content[len(tail) :] if content.startswith(tail) else None

    async def _understood(self, content: bytes, limit: int) -> list[Item]:
        tail = b"" if self._trace.is_document else (self._place.tail + content)[-TAIL_BYTES:]
        self._place = Place(self._place.offset + len(content), tail)
        self._size += len(content)
        self.is_cut = self._size >= limit
        if len(content) <= AT_ONCE_BYTES:
            return self.reader.feed(content)
        return await asyncio.to_thread(self.reader.feed, content)

    async def _end(self) -> list[Item]:
        return await asyncio.to_thread(self.reader.end) if self._trace.is_document else self.reader.end()

    async def _begun_anew(self) -> list[Item]:
        """Return what the file that is no more ended in; the next piece is the new one's first."""
        self._place = Place()
        self.reader.faults.replaced += 1
        self.is_cut = self.reader.faults.replaced >= REPLACED_MAX
        return await self._end()


@dataclass(frozen=True, slots=True)
class Account:
    """What a harness tells of a launch: the conversation, what its other traces add, and what was not understood of both.

    `is_cut` if there is more than what was read.
    """

    items: tuple[Item, ...]
    asides: tuple[Item, ...]
    unknown: Counter[str]
    faults: tuple[Faults, ...]
    is_cut: bool

    @property
    def failure(self) -> Complained | None:
        """Return why the harness gave up, None if it does not say that it did."""
        return next(
            (item for item in (*self.items, *self.asides) if isinstance(item, Complained) and item.is_final), None
        )


async def account_of(launch: Launch, plan: Plan) -> Account:
    """Return what all of a plan's traces hold, once the launch has ended; raises `BoxLost`."""
    followings = [Following(launch, trace) for trace in plan.traces]
    first, *others = [await following.rest() for following in followings]
    return Account(
        items=tuple(first),
        asides=tuple(item for items in others for item in items),
        unknown=sum((following.reader.unknown for following in followings), Counter[str]()),
        faults=tuple(following.reader.faults for following in followings),
        is_cut=any(following.is_cut for following in followings),
    )
