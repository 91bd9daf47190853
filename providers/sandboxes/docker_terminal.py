"""An interactive command in a container, behind a pseudo-terminal of the engine's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from aiodocker.containers import DockerContainer
from aiodocker.execs import Exec
from aiodocker.stream import Stream

from gym_bus.errors import Permanent
from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.docker_line import BROKEN
from providers.sandboxes.marks import kill_marked
from providers.sandboxes.processes import ulimits
from providers.sandboxes.side_shell import MARK
from schemas.sandboxes import SandboxLimits

TYPE_TIMEOUT_S: Final = 15.0
END_TRIES: Final = 50
END_PAUSE_S: Final = 0.1


class EngineTerminal:
    """See `Terminal`."""

    def __init__(self, engine: Engine, exec_: Exec, nonce: str) -> None:
        self._engine = engine
        self._exec = exec_
        self._nonce = nonce
        self._stream: Stream = exec_.start()
        self._is_open = True

    @classmethod
    async def open(
        cls,
        engine: Engine,
        container: DockerContainer,
        limits: SandboxLimits,
        command: str,
        rows: int,
        columns: int,
        variables: Mapping[str, str],
    ) -> EngineTerminal:
        """Start `command`; raises `CreateFailed`."""
        nonce = secrets.token_hex(8)
        script = f'{ulimits(limits, processes=False, memory=False)}; read -r _; exec /bin/sh -c "$1"'
        made = container.exec(
            ["/bin/sh", "-c", script, "sh", command],
            stdin=True,
            tty=True,
            environment={**variables, MARK: nonce, "TERM": "xterm"},
        )
        terminal = cls(engine, await engine.ask("starting a terminal", made), nonce)
        try:
            await engine.ask("starting a terminal", terminal._stream.__aenter__())
            await terminal.resize(rows, columns)
            await terminal.write(b"\n")  # it waited for its size
        except BaseException:
            await terminal.close()
            raise
        return terminal

    async def write(self, content: bytes) -> None:
        """Type; raises `Permanent` if it is over, or does not take what is typed."""
        self._check()
        try:
            async with asyncio.timeout(TYPE_TIMEOUT_S):
                with suppress(*BROKEN):
                    await self._stream.write_in(content)
        except TimeoutError as error:
            raise Permanent("the command behind the terminal takes nothing more: read what it shows") from error

    async def read(self, *, within_s: float) -> bytes:
        """Return what has been shown since the last read; empty after `within_s`, or at its end."""
        self._check()
        with suppress(TimeoutError, *BROKEN):
            async with asyncio.timeout(within_s):
                if message := await self._stream.read_out():
                    return bytes(message.data)
        return b""

    async def resize(self, rows: int, columns: int) -> None:
        """Tell the command how large its terminal is."""
        self._check()
        await self._engine.ask("resizing a terminal", self._exec.resize(h=rows, w=columns))

    async def close(self) -> int | None:
        """End it with its process tree; return the exit code if it had ended by itself. Safe to repeat."""
        state = await self._engine.ask("looking at a terminal", self._exec.inspect())
        code = None if state["Running"] else state["ExitCode"]
        if self._is_open:
            self._is_open = False
            for _ in range(END_TRIES):
                await asyncio.to_thread(kill_marked, f"{MARK}={self._nonce}")
                if not (await self._engine.ask("looking at a terminal", self._exec.inspect()))["Running"]:
                    break
                await asyncio.sleep(END_PAUSE_S)
            with suppress(*BROKEN):
                await self._stream.close()
        return code

    def _check(self) -> None:
        if not self._is_open:
            raise Permanent("the terminal is closed")
