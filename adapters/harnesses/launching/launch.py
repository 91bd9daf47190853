"""Our side of a launch: files go in, the supervisor is started, what it writes is read, and in the end its directory is closed.

Everything there is to know of a launch is in its directory in the machine, so whoever knows machine and directory can go on with it:
start it again (nothing runs twice), wait, read, stop, close. What the harness itself keeps lies elsewhere and outlives the directory.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import shlex
import tempfile
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Final, Protocol, cast

from pydantic import ValidationError

from adapters.harnesses.launching import supervisor
from adapters.harnesses.launching.order import Order
from adapters.harnesses.launching.receipt import Receipt
from gym_bus.errors import GymBusError, Permanent
from providers.sandboxes.base import Box
from providers.sandboxes.capabilities import NoSuchFile, WithDetached, WithFiles
from providers.sandboxes.processes import with_usual_path
from providers.sandboxes.snapshots import TooLarge

LAUNCHES: Final = "/tmp/gym-bus-launches"  # noqa: S108  in the machine, outside of the workspace
SUPERVISOR: Final = "supervisor.py"
PYTHON: Final = "python3"
FLAGS: Final = "-I -S"
"""Isolated, and without what is installed beside it: it needs none, and begins in half the time."""
ASKED_WITHIN_S: Final = 60.0
RECEIPT_MAX_BYTES: Final = 64 * 1024
RECEIPT: Final = "receipt.json"
READ_MAX_BYTES: Final = 1024 * 1024
ORDER_WITHIN_S: Final = 60
"""So long a supervisor waits for its order, which is brought while it begins."""
POLL_FIRST_S: Final = 0.05
POLL_MAX_S: Final = 1.0
LOOK_EVERY: Final = 16
LATE_S: Final = 10.0
"""How long after its deadline and its time of grace a receipt is waited for: a supervisor may be stopped by what it runs."""
OVERTIME_S: Final = 60.0
"""What the machine gives the supervisor beyond all of its own deadlines, should nobody wait for it."""


class LaunchBox(Box, WithFiles, WithDetached, Protocol):
    """A machine in which something can be launched."""


class Unlaunchable(Permanent):
    """A machine in which nothing can be launched; the message says what it lacks."""


class LaunchUnknown(GymBusError):
    """What was launched has ended, and nobody can say how: its supervisor was killed or stopped, or its receipt is none."""


class Standing(Enum):
    """How a launch stands, by the exit code of the supervisor's `look`."""

    UNCLAIMED = supervisor.UNCLAIMED
    RUNNING = supervisor.RUNNING
    ENDED = supervisor.ENDED
    UNKNOWN = supervisor.UNKNOWN
    ABSENT = supervisor.ABSENT


async def require_python(box: Box, python: str = PYTHON) -> None:
    """Raise `Unlaunchable` if the machine has no Python that the supervisor can run with."""
    look = f"{python} {FLAGS} -c 'import ctypes, fcntl, json, selectors, sys; sys.exit(sys.version_info < (3, 8))'"
    done = await box.exec(with_usual_path(look), key="launching: python", timeout_s=ASKED_WITHIN_S)
    if done.exit_code != 0:
        said = done.output.strip()[-200:]
        raise Unlaunchable(
            f"the sandbox's image lacks a usable `{python}` (3.8 or newer, with ctypes), in which agents are launched: {said}"
        )


def launchable(box: Box) -> LaunchBox:
    """Return a machine that something can be launched in; raises `Unlaunchable`."""
    if not (isinstance(box, WithFiles) and isinstance(box, WithDetached)):
        msg = "no program can be launched in this type of sandbox: choose another `sandbox.type`"
        raise Unlaunchable(msg)
    return cast("LaunchBox", box)


async def is_prepared(box: LaunchBox, launches: str = LAUNCHES) -> bool:
    """Say whether a machine is ready for launches; raises `BoxLost`."""
    there = await box.exec(f"[ -f {launches}/{SUPERVISOR} ]", key="launching: ready", timeout_s=ASKED_WITHIN_S)
    return there.exit_code == 0


async def prepare(box: LaunchBox, python: str = PYTHON, launches: str = LAUNCHES) -> None:
    """Make a machine ready for launches, if nobody has: the supervisor is brought. Raises `Permanent`, `BoxLost`."""
    if not await is_prepared(box, launches):
        await require_python(box, python)
        await box.put(Path(supervisor.__file__), f"{launches}/{SUPERVISOR}")


class Launch:
    """One launch in one machine: `launch_id` is its name in there, and its key in the machine's ledger."""

    def __init__(self, box: LaunchBox, launch_id: str, *, python: str = PYTHON, launches: str = LAUNCHES) -> None:
        """Know of a launch, new or old; `python` is shell text."""
        self.directory = f"{launches}/{launch_id}"
        self._launches = launches
        self._box = box
        self._id = launch_id
        self._python = python
        self._numbers = itertools.count(1)
        self._job: str | None = None
        self._late_at: float | None = None
        self._part = f"part-{secrets.token_hex(4)}"
        self._reading = asyncio.Lock()

    async def start(self, order: Order) -> None:
        """Let the supervisor run `order`, unless one has already begun; raises `Permanent`, `BoxLost`.

        It may be repeated by anybody: who comes second starts nothing. The supervisor begins while its order is brought.
        """
        if order.launch_id != self._id:
            raise Permanent(f"the order is for launch {order.launch_id}, not {self._id}")
        try:
            content = order.written()
        except ValueError as error:
            raise Permanent(f"launch {self._id} cannot be ordered: {error}") from error
        timeout_s = order.timeout_s + order.grace_s + supervisor.ENDING_S + OVERTIME_S + ORDER_WITHIN_S
        begin = partial(self._box.start, self._runs(ORDER_WITHIN_S), timeout_s=timeout_s)
        starting = asyncio.ensure_future(begin(key=self._id))
        asking = asyncio.ensure_future(is_prepared(self._box, self._launches))
        works = starting, asking, asyncio.ensure_future(self._put(content, "order"))
        await asyncio.gather(*works, return_exceptions=True)
        for work in works:
            work.result()
        self._job = starting.result()
        if not asking.result():  # then what was started has found no supervisor
            await prepare(self._box, self._python, self._launches)
            self._job = await begin(key=f"{self._id}:prepared")
        self._late_at = asyncio.get_running_loop().time() + order.timeout_s + order.grace_s + LATE_S

    async def standing(self) -> Standing:
        """Return how it stands; raises `BoxLost`."""
        code = await self._ask("look", otherwise=f"exit {supervisor.ABSENT}")
        try:
            return Standing(code)
        except ValueError:
            raise Permanent(f"launch {self._id} cannot be looked at: {code}") from None

    async def receipt(self) -> Receipt | None:
        """Return the receipt, None if there is none yet; raises `LaunchUnknown` for one that cannot be read."""
        try:
            content = await self._get(RECEIPT, RECEIPT_MAX_BYTES)
            receipt = None if content is None else Receipt.model_validate_json(content)
        except (ValidationError, TooLarge) as error:
            raise LaunchUnknown(f"the receipt of launch {self._id} is none: {str(error)[:200]}") from error
        if receipt and receipt.launch_id != self._id:
            raise LaunchUnknown(f"the receipt of launch {self._id} names another one")
        return receipt

    async def wait(self, within_s: float) -> Receipt | None:
        """Return the receipt as soon as there is one; None if after `within_s` it still runs, or was never begun.

        Raises `LaunchUnknown` if there will be none, `BoxLost`.
        """
        loop = asyncio.get_running_loop()
        until, pause_s = loop.time() + within_s, POLL_FIRST_S
        for polls in itertools.count(1):
            is_running = self._job is not None and (await self._box.status(self._job)).is_running
            is_late = self._late_at is not None and loop.time() >= self._late_at
            is_time_to_look = is_late or polls % LOOK_EVERY == 0
            if not is_running or is_time_to_look:
                if (self._job or is_time_to_look or await self._is_written()) and (found := await self._ended()):
                    return found
                if is_late:
                    await self._end_late()
                self._job = self._job if is_running else None  # the job that we started was not the one that runs it
            if loop.time() >= until:
                return None
            await asyncio.sleep(min(pause_s, max(until - loop.time(), 0)))
            pause_s = min(pause_s * 2, POLL_MAX_S)
        return None

    async def read(self, pattern: str, offset: int, *, max_bytes: int = READ_MAX_BYTES) -> bytes:
        """Return what a file holds from byte `offset` on, `max_bytes` at most; empty if there is nothing more, or no such file.

        `pattern` is a path or a glob in the machine; one that is not absolute is in the launch's directory (`stdout`, `stderr`).
        Of several files that match it is the last, by name: names begin with a time where that matters. With `first:` before an
        absolute one it is the first.
        """
        path = pattern if pattern.removeprefix(supervisor.FIRST).startswith("/") else f"{self.directory}/{pattern}"
        words = (self._part, path, str(offset), str(max_bytes))
        async with self._reading:
            code = await self._ask("part", *words, otherwise=f"exit {supervisor.NO_FILE}")
            if code == supervisor.NO_FILE:
                return b""
            if code:
                raise Permanent(f"{pattern!r} of launch {self._id} was not read: {code}")
            return await self._get(self._part, max_bytes) or b""

    async def stop(self, within_s: float) -> Receipt | None:
        """Ask it to stop, and wait; also one that was never begun has a receipt then. None if it did not end `within_s`.

        Raises `LaunchUnknown`, `BoxLost`.
        """
        standing = await self.standing()
        if standing in {Standing.UNCLAIMED, Standing.RUNNING}:
            await self._put(b"", "stop")
        if standing is Standing.UNCLAIMED:
            self._job = await self._box.start(self._runs(), key=self._id, timeout_s=ASKED_WITHIN_S)
        return await self.wait(within_s)

    async def close(self) -> None:
        """End what a killed supervisor left, and remove the directory; safe to repeat. Raises `Permanent` if it still runs."""
        closed = shlex.quote(f"{self.directory}.closed")
        code = await self._ask("close", otherwise=f"rm -rf {closed} {shlex.quote(self.directory)}")
        if code == supervisor.RUNNING:
            raise Permanent(f"launch {self._id} still runs: stop it first")
        if code:
            raise Permanent(f"launch {self._id} was not closed: {code}")

    def _runs(self, *waits_s: int) -> str:
        """Return the command that becomes the supervisor."""
        words = " ".join([shlex.quote(self.directory), *map(str, waits_s)])
        return with_usual_path(f"exec {self._python} {FLAGS} {self._supervisor} run {words}")

    @property
    def _supervisor(self) -> str:
        return shlex.quote(f"{self._launches}/{SUPERVISOR}")

    async def _ended(self) -> Receipt | None:
        """Return the receipt if nothing runs any more: while it does, what lies in its place was written by somebody else."""
        match await self.standing():
            case Standing.ENDED:
                if found := await self.receipt():
                    return found
                raise LaunchUnknown(f"the receipt of launch {self._id} is none: it is no file")
            case Standing.UNKNOWN:
                raise LaunchUnknown(
                    f"launch {self._id} has ended without a receipt: its supervisor was killed, or memory ran out"
                )
            case Standing.ABSENT:
                raise LaunchUnknown(f"launch {self._id} is not there: it was closed, or its directory was removed")
            case Standing.RUNNING | Standing.UNCLAIMED:
                return None

    async def _end_late(self) -> None:
        """Kill what should have ended by itself; raises `LaunchUnknown`, whatever it was that held it up."""
        if self._job is not None:
            await self._box.stop(self._job)
        raise LaunchUnknown(
            f"launch {self._id} has left no receipt {LATE_S:g} s after its time: its supervisor was stopped or held up, and was killed"
        )

    async def _is_written(self) -> bool:
        """Say whether something lies where the receipt will: the cheaper question."""
        try:
            return await self._get(RECEIPT, RECEIPT_MAX_BYTES) is not None
        except TooLarge:
            return True

    async def _ask(self, verb: str, *rest: str, otherwise: str) -> int:
        """Return the exit code of one of the supervisor's verbs; without a supervisor, of what is `otherwise` done.

        Raises `LaunchUnknown` if it did not come to its end, or the directory is not what it was.
        """
        words = shlex.join([verb, self.directory, *rest])
        command = f"[ -f {self._supervisor} ] || {{ {otherwise}; exit; }}; exec {self._python} {FLAGS} {self._supervisor} {words}"
        key = f"{self._id}:{verb}:{next(self._numbers)}"
        done = await self._box.exec(with_usual_path(command), key=key, timeout_s=ASKED_WITHIN_S)
        if done.exit_code is None:
            raise LaunchUnknown(f"launch {self._id}: `{verb}` was not done in {ASKED_WITHIN_S:g} s, and all was killed")
        if done.exit_code == supervisor.SPOILT:
            said, what = done.output.strip()[-200:], f"its program has closed, changed or filled {self.directory}"
            raise LaunchUnknown(f"launch {self._id} cannot be looked at any more: {said}: {what}")
        if done.exit_code not in supervisor.ANSWERS and done.ended_by == "out_of_memory":
            why = "the sandbox ran out of memory, of which files in /tmp and /dev/shm are a part"
            raise LaunchUnknown(f"launch {self._id}: {why}, and what ran was killed")
        if done.ended_by == "signal":
            why = "was killed by something in the sandbox, or for want of memory"
            raise LaunchUnknown(f"launch {self._id}: `{verb}` {why}: {done.exit_code}")
        return done.exit_code

    async def _put(self, content: bytes, name: str) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            await self._box.put(Path(file.name), f"{self.directory}/{name}", mode=0o600)

    async def _get(self, name: str, max_bytes: int) -> bytes | None:
        with tempfile.TemporaryDirectory() as scratch:
            target = Path(scratch) / "file"
            try:
                await self._box.get(f"{self.directory}/{name}", target, max_bytes=max_bytes)
            except NoSuchFile:
                return None
            return target.read_bytes()
