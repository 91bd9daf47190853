"""Files into a box and out of it, through a pipe and a command in the box, as the user that commands run as.

So a path means what it means to commands, links lead where they lead in there, and nothing of the box is ever opened from outside.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.capabilities import NoSuchFile
from providers.sandboxes.command_output import command_output
from providers.sandboxes.marks import kill_marked
from providers.sandboxes.named_pipes import PIPE_BYTES, named_pipe, readable, widen, write_all
from providers.sandboxes.processes import KILLED, with_usual_path
from providers.sandboxes.side_shell import MARK, SideShell, exit_code_of
from providers.sandboxes.snapshots import TooLarge

STALLED_S: Final = 20.0
"""A box that takes or gives nothing for so long is not waited for."""
SLOWEST_BYTES_PER_S: Final = 256 * 1024
TRIES: Final = 3
"""What kills all in a box, such as a command at its deadline, kills what carries a file as well: it is carried again after that."""
WORDS_BYTES: Final = 1024
INTERRUPTED: Final = frozenset({None, KILLED})
NOT_FOUND: Final = 127
NO_FILE: Final = frozenset({1, 2, 44})
"""Shells say 1 or 2 for a file that cannot be opened."""
_PUT: Final = """
[ -d {path} ] && {{ echo 'it is a directory'; exit 1; }}
mkdir -p {directory} && {{ head -c {size} >{part} && chmod {mode:o} {part} && mv -f {part} {path}; }} || {{
    code=$?
    room=$(df -P {directory} 2>/dev/null | tail -n 1 | awk '{{ print $4 }}')
    [ "${{room:-1024}}" -lt 64 ] && echo 'No space left on device'
    rm -f {part}
    exit $code
}}
"""
_GET: Final = """
exec 2>/dev/null
[ -f {path} ] || exit 44
exec 3<{path}
[ -f /proc/self/fd/3 ] || exit 44
exec head -c {size} <&3
"""


class BoxFiles:
    """Carries files for one box; several at a time, and beside its commands."""

    def __init__(self, side: SideShell, alone: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Use `side`; `alone` waits until no command runs, and so until nothing is being killed."""
        self._side = side
        self._alone = alone

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """See `WithFiles`. The file is there whole or not at all: it is written beside its place and renamed."""
        place, part = _place(path), f".gym-bus-{secrets.token_hex(8)}"
        directory = place.rpartition("/")[0] or "/"
        code, words = None, ""
        with _source(source) as (file, size):
            script = _PUT.format(
                path=shlex.quote(place),
                directory=shlex.quote(directory),
                part=shlex.quote(f"{directory}/{part}"),
                size=size,
                mode=mode & 0o777,
            )
            script = with_usual_path(script)
            for _ in range(TRIES):
                code, words = await self._send(script, file, size, path)
                if code not in INTERRUPTED:
                    break
                async with self._alone():
                    pass
        if code != 0:
            reason = "its image has no `head`, `mkdir`, `chmod` or `mv`" if code == NOT_FOUND else words.strip()
            raise Permanent(f"{path!r} was not written in the sandbox: {reason or 'what writes it was killed'}")

    async def get(self, path: str, target: Path, *, max_bytes: int) -> int:
        """See `WithFiles`."""
        script = with_usual_path(_GET.format(path=shlex.quote(_place(path)), size=max_bytes + 1))
        code, size = None, 0
        with _target(target) as file:
            for _ in range(TRIES):
                code, size = await self._receive(script, file, path, max_bytes)
                if size > max_bytes:
                    raise TooLarge(f"{path!r} in the sandbox has more than {max_bytes:,} bytes")
                if code not in INTERRUPTED:
                    break
                async with self._alone():
                    pass
            if code in NO_FILE:
                raise NoSuchFile(f"{path!r} is not in the sandbox, is no regular file, or cannot be read there")
            if code != 0:
                reason = "its image has no `head`" if code == NOT_FOUND else "what reads it was killed"
                raise Permanent(f"{path!r} was not read in the sandbox: {reason}")
        return size

    async def _send(self, script: str, file: int, size: int, path: str) -> tuple[int | None, str]:
        """Run `script` with the file as its input; return its exit code and what it said."""
        with (
            named_pipe(self._side.room, "in") as (input_, pipe),
            command_output(self._side.room, WORDS_BYTES) as (nonce, said),
        ):
            try:
                widen(pipe)
                done = await self._side.begin(script, nonce, reads=f"{self._side.view}/{input_}", is_bounded=False)
                async with asyncio.timeout(STALLED_S + size / SLOWEST_BYTES_PER_S):
                    for offset in range(0, size, PIPE_BYTES):
                        content = await asyncio.to_thread(os.pread, file, min(PIPE_BYTES, size - offset), offset)
                        if len(content) < min(PIPE_BYTES, size - offset):
                            await self._end(nonce)
                            raise Permanent(f"{path!r} was not written in the sandbox: its source became shorter")
                        async with asyncio.timeout(STALLED_S):
                            if not await write_all(pipe, content, or_done=done):
                                break
                    code = await done
            except TimeoutError as error:
                await self._end(nonce)
                raise Permanent(f"{path!r} was not written in the sandbox: it takes nothing more") from error
            except asyncio.CancelledError:
                await self._end(nonce)
                raise
            finally:
                os.close(pipe)
            return code, said.finish().text

    async def _receive(self, script: str, file: int, path: str, max_bytes: int) -> tuple[int | None, int]:
        """Run `script`, and keep at most `max_bytes` of its output; return its exit code and the output's size."""
        os.ftruncate(file, 0)
        with named_pipe(self._side.room, "out") as (nonce, pipe):
            try:
                widen(pipe)
                done = await self._side.begin(script, nonce, is_bounded=False)
                async with asyncio.timeout(STALLED_S + max_bytes / SLOWEST_BYTES_PER_S):
                    size = await _copy(pipe, file, max_bytes, done)
                    code = await exit_code_of(done) if size <= max_bytes else None
            except TimeoutError as error:
                await self._end(nonce)
                raise NoSuchFile(f"{path!r} in the sandbox is no regular file any more: nothing comes of it") from error
            except asyncio.CancelledError:
                await self._end(nonce)
                raise
            finally:
                os.close(pipe)
        return code, size

    async def _end(self, nonce: str) -> None:
        await asyncio.to_thread(kill_marked, f"{MARK}={nonce}")


async def _copy(pipe: int, file: int, max_bytes: int, done: asyncio.Future[int | None]) -> int:
    """Write what comes through `pipe` to `file`, up to its end or to `max_bytes`; return how much came, at most one read more."""
    size, has_waited = 0, False
    while size <= max_bytes:
        is_over, content = done.done(), None
        with suppress(BlockingIOError):
            content = os.read(pipe, PIPE_BYTES)
        if content:
            size += len(content)
            if size <= max_bytes:
                await asyncio.to_thread(_write, file, content)
            continue
        if is_over or (content == b"" and has_waited):  # before somebody writes there is nothing to wake us
            break  # who still holds its other end is not waited for
        async with asyncio.timeout(STALLED_S):
            await readable(pipe, or_done=done)
        has_waited = True
    return size


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]


def _place(path: str) -> str:
    """Return `path` as a shell in the workspace can be given it."""
    try:
        is_text = b"\0" not in path.encode()
    except UnicodeEncodeError:
        is_text = False
    if not is_text or not path or path.endswith("/"):
        raise Permanent(f"{path!r} is no path of a file: it is empty, ends in /, or is no text")
    return path if path.startswith("/") else f"./{path}"


@contextmanager
def _source(path: Path) -> Generator[tuple[int, int], None, None]:
    """Yield this host's file `path`, open, and its size; what is no regular file is refused."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Permanent(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise Permanent(f"{path} is no regular file")
        yield file, status.st_size
    finally:
        os.close(file)


@contextmanager
def _target(path: Path) -> Generator[int, None, None]:
    """Yield a new file of this host, which is removed if what it is for fails."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Permanent(f"{path} cannot be made: {error.strerror}") from error
    try:
        yield file
    except OSError as error:
        path.unlink(missing_ok=True)
        raise Permanent(f"{path} cannot be written: {error.strerror}") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
