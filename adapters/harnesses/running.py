"""Running an activation: its files go into the machine, it is launched, and what it writes is followed."""

from __future__ import annotations

import asyncio
import shlex
import tempfile
from collections import Counter
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from adapters.harnesses.base import Plan, Trace
from adapters.harnesses.launching import Launch, LaunchBox, Order, prepare
from adapters.harnesses.launching.launch import READ_MAX_BYTES
from adapters.harnesses.launching.supervisor import FIRST
from adapters.harnesses.lines import Faults
from adapters.harnesses.readers import DOCUMENT_MAX_BYTES, Reader
from adapters.harnesses.trajectory import Complained, Item
from gym_bus.errors import Permanent
from providers.sandboxes.processes import with_usual_path

TRACE_MAX_BYTES: Final = 256 * 1024 * 1024
PUT_WITHIN_S: Final = 30.0


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
    order = Order(
        launch_id=launch_id,
        argv=plan.argv,
        environment=dict(plan.environment),
        cwd=cwd,
        timeout_s=timeout_s,
        grace_s=grace_s,
        stdin=stdin,
    )
    await _all(
        _ready(box, launch_id, cwd, plan.copied),
        launch.bring(order),
        *(put_text(box, content, path) for path, content in files.items()),
        *(put_text(box, content, path, mode=0o700) for path, content in plan.programs.items()),
    )
    await launch.go(order)
    return launch


async def _ready(box: LaunchBox, launch_id: str, cwd: str, copied: Mapping[str, str]) -> None:
    await prepare(box)
    make = with_usual_path(f"mkdir -p {shlex.quote(cwd)}")
    made = await box.exec(make, key=f"{launch_id}:cwd", timeout_s=PUT_WITHIN_S)
    if made.exit_code != 0:
        raise Permanent(f"launch {launch_id}: {cwd} is no directory: {made.output.strip()[-200:]}")
    for number, (source, place) in enumerate(copied.items()):
        copy = f"mkdir -p {shlex.quote(place)} && cp -R {shlex.quote(source)}/. {shlex.quote(place)}"
        done = await box.exec(with_usual_path(copy), key=f"{launch_id}:copy{number}", timeout_s=PUT_WITHIN_S)
        if done.exit_code != 0:
            raise Permanent(f"launch {launch_id}: {source} cannot be copied: {done.output.strip()[-200:]}")


async def _all(*works: Coroutine[Any, Any, None]) -> None:
    """Do all at once; raises the first of what goes wrong, when all are over."""
    for outcome in await asyncio.gather(*works, return_exceptions=True):
        if outcome is not None:
            raise outcome


async def written_before(box: LaunchBox, trace: Trace, key: str) -> int:
    """Return how many bytes a trace holds before the launch: those of a session that is resumed; raises `Permanent`, `BoxLost`."""
    pattern = trace.where.removeprefix(FIRST)
    if not pattern.startswith("/") or trace.is_document:
        return 0
    step = ":" if pattern == trace.where else "break"
    look = f'for file in {pattern}; do {step}; done; if [ -f "$file" ]; then wc -c < "$file"; else echo 0; fi'
    done = await box.exec(with_usual_path(look), key=f"{key}:before", timeout_s=PUT_WITHIN_S)
    if done.exit_code != 0 or not done.output.strip().isdigit():
        raise Permanent(f"{trace.where} cannot be looked at: {done.output.strip()[-200:]}")
    return int(done.output)


async def put_text(box: LaunchBox, content: str, path: str, mode: int = 0o600) -> None:
    """Make a file of the machine that only its user reads."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(content.encode())
        file.flush()
        await box.put(Path(file.name), path, mode=mode)


class Following:
    """Reads one trace of a launch as it grows. `is_cut` if it grew beyond what is read of it, 256 MiB."""

    def __init__(self, launch: Launch, trace: Trace, offset: int = 0) -> None:
        """Begin at its beginning, or at byte `offset`; whoever takes over does so as well."""
        self.reader: Reader = trace.reader()
        self.is_cut = False
        self._launch = launch
        self._trace = trace
        self._offset = offset

    async def more(self) -> list[Item]:
        """Return what came since the last time, 1 MiB of the file at most; nothing of a document, which is read at its end."""
        return await self.next_piece() or []

    async def next_piece(self) -> list[Item] | None:
        """Return what the next MiB of the file says, None if there is nothing more of it now, or for a document."""
        if self._trace.is_document or self.is_cut:
            return None
        content = await self._launch.read(self._trace.where, self._offset, max_bytes=READ_MAX_BYTES)
        self._offset += len(content)
        self.is_cut = self._offset >= TRACE_MAX_BYTES
        return self.reader.feed(content) if content else None

    async def rest(self) -> list[Item]:
        """Return all that is left when the launch has ended."""
        limit = DOCUMENT_MAX_BYTES if self._trace.is_document else TRACE_MAX_BYTES
        items: list[Item] = []
        while content := await self._launch.read(self._trace.where, self._offset, max_bytes=READ_MAX_BYTES):
            self._offset += len(content)
            items += self.reader.feed(content)
            if self._offset >= limit:
                self.is_cut = True
                break
        return items + self.reader.end()


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
