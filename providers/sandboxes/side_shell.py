"""A second shell in a box, for what goes on beside its commands: files that go in or out, and detached jobs.

It is started when it is first asked for, and again when something in the box has killed it. It reads from one named pipe and answers
through another: `begin 'COMMAND' NONCE …` starts `/bin/sh -c COMMAND` with the pipe NONCE as its output, and `NONCE EXITCODE` is said
when that is over. Everything that it starts carries its nonce in the environment, by which it is found from outside and killed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.base import BoxLost
from providers.sandboxes.named_pipes import named_pipe, write_all
from providers.sandboxes.processes import exports
from providers.sandboxes.rooms import Room

MARK: Final = "GYM_BUS_JOB"
START_TIMEOUT_S: Final = 20.0
TRIES: Final = 3
SAID_WITHIN_S: Final = 2.0
LINE_MAX_BYTES: Final = 4096
_FUNCTIONS: Final = """
exec 5>&1 >/dev/null 2>/dev/null
begin() {{
    (
        (
            [ "$4" = free ] || {{ {ulimits}; }}
            echo 500 2>/dev/null >/proc/self/oom_score_adj
            export {mark}="$2"
            exec /bin/sh -c "$1"
        ) 2>&1 5>&-
        echo "$2 $?" >&5
    ) <"$3" >{pipes}/"$2" &
}}
"""


async def exit_code_of(done: asyncio.Future[int | None]) -> int | None:
    """Return the exit code of what has closed its output; None if what would have said it was killed."""
    found, _ = await asyncio.wait([done], timeout=SAID_WITHIN_S)
    return done.result() if found else None


class SideShell:
    """See the module. `launch` runs a line of shell in the box and does not wait for its end.

    `view` is where the box sees its pipes, `program` the shell to be, `bounds` shell text that sets the limits of a job.
    """

    def __init__(
        self,
        room: Room,
        launch: Callable[[str], Awaitable[None]],
        *,
        view: str,
        program: str,
        bounds: str,
    ) -> None:
        self.room = room
        self._launch = launch
        self.view = view
        self._program = program
        self._bounds = bounds
        self._exports = ""
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._input = self._answers = -1
        self._heard = b""
        self._running: dict[str, asyncio.Future[int | None]] = {}
        self._hello: asyncio.Future[int | None] | None = None
        self._is_over = False

    async def begin(
        self, command: str, output: str, *, reads: str = "/dev/null", is_bounded: bool
    ) -> asyncio.Future[int | None]:
        """Start `command` with the pipe `output`; what is returned becomes its exit code, or None if all was killed around it.

        Raises `BoxLost`, and `Permanent` if the box has no room for one more process.
        """
        bound = "bounded" if is_bounded else "free"
        line = f"begin {shlex.quote(command)} {output} {shlex.quote(reads)} {bound}\n"
        async with self._one_at_a_time:
            await self._stand()
            done = self._running[output] = self._loop.create_future()
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await write_all(self._input, line.encode(), or_done=done)
            except (BrokenPipeError, TimeoutError):
                self._hang_up()
            except BaseException:
                del self._running[output]
                raise
        return done

    async def set_environment(self, variables: Mapping[str, str]) -> None:
        """Put variables into the environment of every later command."""
        async with self._one_at_a_time:
            self._exports += exports(variables)
            if self._input < 0:
                return
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await write_all(self._input, self._exports.encode())
            except (BrokenPipeError, TimeoutError):  # the next one is told when it starts
                self._hang_up()

    def close(self) -> None:
        """Let it end; whoever waits for something is told that it is gone. Safe to repeat."""
        self._is_over = True
        self._hang_up()

    def all_was_killed(self) -> None:
        """Take note of it: a shell that was just being started will not answer."""
        if self._hello and not self._hello.done():
            self._hello.set_result(None)

    async def _stand(self) -> None:
        for _ in range(TRIES):
            if self._is_over:
                raise BoxLost("the sandbox is gone; nothing was started")
            if self._answers >= 0 or await self._start():
                return
        raise Permanent("the sandbox has no room for a process beside its commands: its limit of processes is used up")

    async def _start(self) -> bool:
        """Start the shell; return whether it answers."""
        nonce = secrets.token_hex(8)
        with named_pipe(self.room, "in") as (input_, write), named_pipe(self.room, "out") as (output, read):
            self._answers = read
            self._loop.add_reader(read, self._listen)
            hello = self._hello = self._running[nonce] = self._loop.create_future()
            try:
                await self._launch(f"exec {self._program} <{self.view}/{input_} >{self.view}/{output}")
                functions = _FUNCTIONS.format(ulimits=self._bounds, mark=MARK, pipes=self.view)
                async with asyncio.timeout(START_TIMEOUT_S):
                    await write_all(write, f"{functions}{self._exports}echo {nonce} 0 >&5\n".encode(), or_done=hello)
                    code = await hello
                if code is not None:
                    # our end of it read as well until now: from here on its death is seen
                    self._input = os.open(self.room.pipes / input_, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (TimeoutError, OSError):
                pass
            finally:
                self._hello = None
                os.close(write)
                if self._input < 0:
                    self._hang_up()
        return self._input >= 0

    def _listen(self) -> None:
        try:
            data = os.read(self._answers, LINE_MAX_BYTES)
        except BlockingIOError:
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            nonce, _, code = line.decode(errors="replace").partition(" ")
            done = self._running.pop(nonce, None)
            if done and not done.done():
                done.set_result(int(code) if code.isdecimal() else None)
        if not data or len(self._heard) > LINE_MAX_BYTES:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._answers >= 0:
            self._loop.remove_reader(self._answers)
        for fd in (self._input, self._answers):
            if fd >= 0:
                os.close(fd)
        self._input = self._answers = -1
        self._heard = b""
        running, self._running = self._running, {}
        for done in running.values():
            if not done.done():
                done.set_result(None)
