"""Small facts about processes of this machine: when they end, whose children they are, what may be run at all."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, Literal

from providers.sandboxes.base import CreateFailed, ExecResult
from providers.sandboxes.output import Output
from schemas.sandboxes import SandboxLimits

FIRST_SIGNAL_CODE: Final = 129
KILLED: Final = 128 + 9
LAST_SIGNAL_CODE: Final = 128 + 64
OPEN_FILES: Final = 4096
"""What a process may have open: with all of a box's processes far less than what a host can open, which nothing else divides."""
COMMAND_MAX_BYTES: Final = 131_071
"""Linux takes no longer argument (MAX_ARG_STRLEN)."""

USUAL_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def refusal(command: str) -> ExecResult | None:
    """Return the result for a command that no shell can be given, None if it can."""
    try:
        encoded = command.encode()
    except UnicodeEncodeError:
        return failed("the command is not valid text (lone surrogates)")
    if b"\0" in encoded:
        return failed("the command holds a NUL character")
    if len(encoded) > COMMAND_MAX_BYTES:
        return failed(f"the command is longer than {COMMAND_MAX_BYTES} bytes")
    return None


def failed(message: str, exit_code: int = 127) -> ExecResult:
    """Return a shell's result for a command that was not found or not understood."""
    output = f"sh: {message}\n"
    return ExecResult(exit_code, output, len(output.encode()), truncated=False, ended_by="exit", duration_s=0.0)


def result(exit_code: int | None, output: Output, duration_s: float) -> ExecResult:
    """Return what came of a command; without an exit code it was ended at its deadline.

    A shell's codes from 129 to 192 stand for a death by signal, whoever chose them. Memory that ran out is not told
    apart: where the bound is an rlimit, allocation fails in the program, which ends as it likes. See `out_of_memory`.
    """
    if exit_code is None:
        return ExecResult(None, output.text, output.size, output.truncated, "timeout", duration_s)
    ended_by: Literal["exit", "signal"] = "signal" if FIRST_SIGNAL_CODE <= exit_code <= LAST_SIGNAL_CODE else "exit"
    return ExecResult(exit_code, output.text, output.size, output.truncated, ended_by, duration_s)


def out_of_memory(exit_code: int, output: Output, duration_s: float) -> ExecResult:
    """Return what came of a command of which the kernel killed something because its box had no memory left."""
    return ExecResult(exit_code, output.text, output.size, output.truncated, "out_of_memory", duration_s)


def settle(future: asyncio.Future[None]) -> None:
    """Wake who waits for `future`; that it is settled or cancelled already is fine."""
    if not future.done():
        future.set_result(None)


def pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe that was asked for when its process was started."""
    if stream is None:
        raise CreateFailed("the process was started without pipes")
    return stream


def ulimits(limits: SandboxLimits, *, processes: bool, memory: bool = True) -> str:
    """Return shell text that sets the limits for itself and what it starts; a lower limit of the host stays.

    `processes` and `memory` are left out where something else bounds them for a box as a whole.
    """
    settings = [
        "ulimit -c 0",
        f"ulimit -f {limits.file_mib * 2048}",  # blocks of 512 bytes, in every POSIX shell
        f"ulimit -t {limits.cpu_s}",
        f"ulimit -n {OPEN_FILES}",
    ]
    if memory:
        settings.append(f"ulimit -v {limits.memory_mib * 1024}")
    if processes:  # dash calls it -p, bash -u
        settings.append(f"ulimit -p {limits.processes} || ulimit -u {limits.processes}")
    return "{ " + "; ".join(settings) + "; } 2>/dev/null"


def exports(variables: Mapping[str, str]) -> str:
    """Return shell text that puts variables into the environment of what is started from then on."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def with_usual_path(command: str) -> str:
    """Return a command of ours that finds the usual programs, whatever `PATH` the machine's task has given it."""
    return f'PATH="${{PATH:+$PATH:}}{USUAL_PATH}"; {command}'


async def exited(pid: int, timeout_s: float) -> bool:
    """Wait for the end of our child `pid`, which is not reaped; return False if it still runs after `timeout_s`."""
    loop = asyncio.get_running_loop()
    fd = os.pidfd_open(pid)
    done: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, settle, done)
    try:
        async with asyncio.timeout(timeout_s):
            await done
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
        os.close(fd)
    return True


def children(pid: int) -> list[int]:
    """Return the process ids of the direct children of `pid`, seen from here; none if it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    """Return the process ids of all that descends from `pid`, itself left out; whose parent died is its namespace's first's."""
    found = children(pid)
    for one in found:  # it grows meanwhile
        found += children(one)
    return found


def in_namespace_of(pid: int) -> list[int]:
    """Return the processes that are in the same pid namespace as `pid`, itself too. Those that we may not look at are left out."""
    wanted, found = f"/proc/{pid}/ns/pid", []
    with suppress(OSError):
        namespace = os.readlink(wanted)  # noqa: PTH115  no path: `pid:[4026531836]`
        for one in os.scandir("/proc"):
            with suppress(OSError):
                if one.name.isdecimal() and os.readlink(f"/proc/{one.name}/ns/pid") == namespace:  # noqa: PTH115
                    found.append(int(one.name))
    return found


def is_first(pid: int) -> bool:
    """Say whether a process is the first of its pid namespace, and not of ours; no if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    pids = status.partition("\nNSpid:")[2].partition("\n")[0].split()
    return len(pids) > 1 and pids[-1] == "1"


def kill(pid: int) -> None:
    """Send SIGKILL; that the process is gone already is fine."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
