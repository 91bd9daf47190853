"""Runs one command inside a machine to its end, and leaves a receipt that says how it ended. Carried there as text; Python 3.8.

`python3 -I supervisor.py run DIR [SECONDS]` takes what is to be run, and the files that it needs, from DIR/order; with SECONDS it makes
DIR, and waits so long for an order: it can be started while that is brought. Whoever holds the lock on DIR/claim is the one process
that runs it; a claim with something in it is never taken again, so nothing runs twice, whoever is killed when. As child subreaper it
inherits what the command leaves behind, daemons too, and ends all of it before it writes DIR/receipt.json. A file DIR/stop, or TERM,
asks it to stop. Without a receipt nothing is known of how the command ended.

`look DIR` exits with 0 if nothing was run yet, 10 while something runs, 11 if it ended with a receipt and 12 if without one, 13 if DIR
is not there. `close DIR` ends what was left, makes later launches impossible and removes DIR; 10 if something runs.
All of them exit with 16, and say why, if DIR is not as it was made.
`part DIR NAME PATTERN OFFSET SIZE` copies so much of the last regular file that matches, by name, to DIR/NAME; 44 if there is none.

The command is the same user and may do what it likes in DIR: nothing that lies there is waited for, followed or written into.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    try:
        import _signal as signal  # the same without its enumerations, which take six milliseconds to load
    except ImportError:
        import signal

UNCLAIMED, RUNNING, ENDED, UNKNOWN, ABSENT, BUSY, SPOILT, NO_FILE = 0, 10, 11, 12, 13, 14, 16, 44
ANSWERS = (UNCLAIMED, RUNNING, ENDED, UNKNOWN, ABSENT, BUSY, NO_FILE)
SET_PDEATHSIG, SET_CHILD_SUBREAPER = 1, 36  # prctl(2)
POLL_S = 0.05
CHUNK_BYTES = 65536
SLOWED_S = 0.01
AWAITED_S = 0.002
ELSEWHERE_S = 2.0
ENDING_S = 15.0
ORDER_MAX_BYTES = 4 * 1024 * 1024
CLAIM_MAX_BYTES = 4096
CLAIM_TRIES = 200
MADE_TRIES = 20
FIRST = "first:"
MARK, JOB_MARK = "GYM_BUS_LAUNCH", "GYM_BUS_JOB"
LIBC = ctypes.CDLL(None, use_errno=True)


class suppress:  # noqa: N801  named like the one in contextlib, which takes five milliseconds to load
    """Let errors of some kinds be none."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self.kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self.kinds)


class Order:
    """What is to be run, as it was written: the length of its texts, the texts with NULs between them, and what the files hold."""

    def __init__(self, content: bytes) -> None:
        size, _, rest = content.partition(b"\0")
        texts, self.contents = rest[: int(size)], rest[int(size) :]
        name, self.cwd, self.stdin, timeout_s, grace_s, stdout, stderr, files, count, *words = texts.split(b"\0")
        self.launch_id = name.decode()
        self.timeout_s, self.grace_s = float(timeout_s), float(grace_s)
        self.limits = {"stdout": int(stdout), "stderr": int(stderr)}
        start, end = 3 * int(files), 3 * int(files) + int(count)
        self.files = list(zip(words[:start:3], words[1:start:3], words[2:start:3]))  # noqa: B905  not in Python 3.8
        self.argv = words[start:end]
        self.environment = dict(pair.split(b"=", 1) for pair in words[end:])

    def bring(self) -> None:
        """Make the directory that the command begins in, and the files; raises `OSError`, which names the one that it is about."""
        os.makedirs(self.cwd, exist_ok=True)
        offset = 0
        for path, mode, size in self.files:
            put(path, int(mode, 8), self.contents[offset : offset + int(size)])
            offset += int(size)


class Output:
    """One stream of the command: its first bytes are kept in a file, the rest is counted, and read slowly."""

    def __init__(self, path: str, limit: int) -> None:
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.reads, False)
        self.file = made(path)
        self.limit, self.size, self.kept = limit, 0, 0
        self.is_full = limit <= 0

    def take(self) -> bool:
        """Read what is there, one piece of it; return False at its end."""
        try:
            content = os.read(self.reads, CHUNK_BYTES)
        except BlockingIOError:
            return True
        self.size += len(content)
        rest = b"" if self.is_full else content[: self.limit - self.kept]
        while rest:
            try:
                written = os.write(self.file, rest)
            except OSError:  # no room, or the limit of a file's size
                self.is_full = True
                break
            self.kept, rest = self.kept + written, rest[written:]
        if self.kept >= self.limit:
            self.is_full = True
        if content and self.size > self.kept:
            time.sleep(SLOWED_S)
        return bool(content)

    def drain(self) -> None:
        """Take what is left in the pipe when everything that wrote to it has ended, or at most as much as a pipe holds."""
        for _ in range(64):
            before = self.size
            if not self.take() or self.size == before:
                break

    def told(self) -> dict[str, Any]:
        """Return what the receipt says of it."""
        return {"bytes": self.size, "kept": self.kept, "truncated": self.size > self.kept}


class Supervisor:
    """One command, from its start to its receipt."""

    def __init__(self, directory: str, order: Order) -> None:
        self.directory, self.order = directory, order
        self.outputs = {name: Output(os.path.join(directory, name), limit) for name, limit in order.limits.items()}
        self.child = 0
        self.status: int | None = None
        self.is_asked = False
        self.killed: set[int] = set()
        self.error: str | None = None

    def run(self) -> bytes:
        """Return the receipt, as it is written."""
        started, began = time.time(), time.monotonic()
        ended_by, is_clean = "stopped", True
        if not self.stop_is_asked():
            try:
                self.order.bring()
            except OSError as error:
                ended_by, self.error = "unready", os.fsdecode(error.filename or b"") + ": " + str(error.strerror)
            else:
                ended_by = "exit"
                self.start_or_say()
        from json import dumps  # before it is over: what runs may remove it

        if self.child:
            ended_by = self.watch(began + self.order.timeout_s)
            is_clean = self.end_all()
        for output in self.outputs.values():
            output.drain()
            os.fsync(output.file)
        status = self.status
        signalled = status is not None and os.WIFSIGNALED(status)
        receipt = {
            "launch_id": self.order.launch_id,
            "ended_by": ended_by,
            "exit_code": None if status is None or signalled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if status is not None and signalled else None,
            "was_started": bool(self.child),
            "started_at": started,
            "ended_at": time.time(),
            "duration_s": round(time.monotonic() - began, 3),
            "descendants_killed": len(self.killed),
            "is_clean": is_clean,
            "error": self.error,
            **{name: output.told() for name, output in self.outputs.items()},
        }
        return dumps(receipt).encode()

    def start(self) -> None:
        """Fork; the child leads a session of its own and dies with us. Raises `OSError` if the command cannot be run."""
        told, tells = os.pipe()
        stdin = os.open(self.order.stdin or os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        parent = os.getpid()
        child = os.fork()
        if not child:
            try:
                self.become(stdin, parent)
            except OSError as error:
                os.write(tells, str(error.errno or 0).encode())
            finally:
                os._exit(127)
        self.child = child
        os.close(tells)
        os.close(stdin)
        for output in self.outputs.values():
            os.close(output.writes)
        said = os.read(told, 16)
        os.close(told)
        if said:
            os.waitpid(child, 0)
            self.child = 0
            number = int(said)
            raise OSError(number, os.strerror(number), os.fsdecode(self.order.argv[0]))

    def become(self, stdin: int, parent: int) -> None:
        """In the child: be the command."""
        os.setsid()
        LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(self.order.cwd)
        os.dup2(stdin, 0)
        os.dup2(self.outputs["stdout"].writes, 1)
        os.dup2(self.outputs["stderr"].writes, 2)
        environment = {**self.order.environment, os.fsencode(MARK): self.order.launch_id.encode()}
        if JOB_MARK in os.environ:  # by which the machine's keeper finds what it started
            environment[os.fsencode(JOB_MARK)] = os.fsencode(os.environ[JOB_MARK])
        os.execvpe(self.order.argv[0], self.order.argv, environment)  # noqa: S606  without a shell: what was ordered

    def watch(self, deadline: float) -> str:
        """Wait for the command's end, the deadline or a wish to stop; return what came first."""
        import selectors

        with selectors.DefaultSelector() as selector:
            for output in self.outputs.values():
                selector.register(output.reads, selectors.EVENT_READ, output)
            while True:
                self.reap()
                self.forget_order()
                if self.status is not None:
                    return "exit"
                if self.stop_is_asked():
                    return "stopped"
                if time.monotonic() >= deadline:
                    return "timeout"
                if not selector.get_map():
                    time.sleep(POLL_S)
                    continue
                for key, _ in selector.select(POLL_S):
                    if not key.data.take():
                        selector.unregister(key.fileobj)

    def start_or_say(self) -> None:
        """Start the command; one that cannot be started has ended as a shell would tell it."""
        try:
            self.start()
        except OSError as error:
            self.error = str(error)
            self.status = (127 if isinstance(error, FileNotFoundError) else 126) << 8

    def forget_order(self) -> None:
        """Remove an order that came again: it holds the environment."""
        with suppress(OSError):
            os.unlink(os.path.join(self.directory, "order"))

    def stop_is_asked(self) -> bool:
        """Say whether TERM came, or the file is there."""
        return self.is_asked or os.path.lexists(os.path.join(self.directory, "stop"))

    def end_all(self) -> bool:
        """End everything that descends from us: TERM, some time, KILL; return whether nothing is left."""
        self.strike(signal.SIGTERM)
        if self.gone_within(self.order.grace_s):
            return True
        until = time.monotonic() + ENDING_S
        while time.monotonic() < until:
            self.strike(signal.SIGSTOP)  # what is stopped starts nothing new
            self.strike(signal.SIGKILL)
            if self.gone_within(POLL_S):
                return True
        return False

    def gone_within(self, seconds: float) -> bool:
        """Wait for the end of all descendants, and read on meanwhile: a full pipe would hold them up."""
        until = time.monotonic() + seconds
        while True:
            self.reap()
            if self.status is not None and not descendants():
                return True
            if time.monotonic() >= until:
                return False
            for output in self.outputs.values():
                output.take()
            time.sleep(SLOWED_S)

    def strike(self, number: int) -> None:
        """Send a signal to all descendants; those beside the command itself are counted."""
        for pid in descendants():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
                if pid != self.child:
                    self.killed.add(pid)

    def reap(self) -> None:
        """Bury the dead."""
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                if pid == self.child:
                    self.status = status


def held_by(path: str) -> bytes:
    """Return what a file of /proc holds; raises `OSError`."""
    with open(path, "rb") as file:
        return file.read()


def descendants() -> list[int]:
    """Return the living processes that descend from this one, dead ones that nobody has buried left out."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                state, parent = held_by("/proc/" + name + "/stat").rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    parents[int(name)] = int(parent)
    found: set[int] = {os.getpid()}
    grows = True
    while grows:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grows = bool(more)
    return sorted(found - {os.getpid()})


def end_marked(launch_id: bytes) -> None:
    """Kill what was left: processes that carry its launch in their environment."""
    mark, quiet, until = os.fsencode(MARK) + b"=" + launch_id, 0, time.monotonic() + ENDING_S
    while quiet < 3 and time.monotonic() < until:  # noqa: PLR2004  a process that becomes another shows no environment for a moment
        quiet += 1
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                with suppress(OSError):
                    if mark in held_by("/proc/" + name + "/environ").split(b"\0"):
                        os.kill(int(name), signal.SIGKILL)
                        quiet = 0
        time.sleep(SLOWED_S)


def claim(directory: str, kind: int = fcntl.LOCK_EX) -> tuple[int, bytes] | None:
    """Return the locked file DIR/claim and what it holds, or None if somebody runs there.

    Raises `FileNotFoundError` without DIR.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(os.path.join(directory, "claim"), flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "the claim in it is no file")
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor, os.pread(descriptor, CLAIM_MAX_BYTES, 0)


def cleared(path: str) -> None:
    """Let nothing be at `path`; a directory is put aside."""
    with suppress(FileNotFoundError):
        try:
            os.unlink(path)
        except OSError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise
            os.rename(path, path + "." + os.urandom(4).hex())


def made(path: str) -> int:
    """Return a new file at `path`, open for writing, instead of whatever lies there; raises `OSError`."""
    for _ in range(MADE_TRIES):
        cleared(path)
        with suppress(FileExistsError):
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    raise FileExistsError(errno.EEXIST, "something is there again and again", path)


def write_whole(path: str, content: bytes) -> None:
    """Let `path` hold `content`, or be as it was, whatever happens."""
    part = path + ".part"
    with open(made(part), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.replace(part, path)
    except OSError:  # a directory
        cleared(path)
        os.replace(part, path)
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def put(path: bytes, mode: int, content: bytes) -> None:
    """Let a file be there, whole or as it was; raises `OSError`."""
    if os.path.isdir(path):
        raise OSError(errno.EISDIR, "it is a directory", path)
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    part = os.path.join(directory, b".gym-bus-" + os.urandom(8).hex().encode())
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
        os.rename(part, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(part)
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), path) from None


def await_order(directory: str, seconds: float) -> bool:
    """Wait for an order; return False if none came for some time, and somebody runs one already."""
    os.makedirs(directory, exist_ok=True)
    order, stop, claimed = (os.path.join(directory, name) for name in ("order", "stop", "claim"))
    began = time.monotonic()
    while not os.path.lexists(order) and not os.path.lexists(stop):
        waited = time.monotonic() - began
        if waited >= seconds:
            break
        if waited >= ELSEWHERE_S:
            with suppress(OSError):
                if os.stat(claimed).st_size:
                    return False
        time.sleep(AWAITED_S)
    return True


def run(directory: str, seconds: str = "") -> int:
    """Be the one that runs what is ordered; 0 also if another one is."""
    if seconds and not await_order(directory, float(seconds)):
        return 0
    for _ in range(CLAIM_TRIES):
        try:
            found = claim(directory)
        except FileNotFoundError:
            return ABSENT
        if found:
            break
        if os.stat(os.path.join(directory, "claim")).st_size:
            return 0
        time.sleep(SLOWED_S)  # somebody looks, or is about to run it
    else:
        return BUSY
    held, said = found
    ordered = os.path.join(directory, "order")
    if said:
        with suppress(FileNotFoundError):  # who claimed it has read its own
            os.unlink(ordered)
        return 0
    with open(os.open(ordered, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        order = Order(file.read(ORDER_MAX_BYTES))
    os.write(held, (order.launch_id + " " + str(os.getpid())).encode())
    os.fsync(held)
    os.unlink(ordered)  # it holds the environment
    with suppress(PermissionError):
        os.setsid()
    LIBC.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    supervisor = Supervisor(directory, order)

    def asked(*_: object) -> None:
        supervisor.is_asked = True

    signal.signal(signal.SIGTERM, asked)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):  # whoever started us may go
        os.dup2(nothing, descriptor)
    write_whole(os.path.join(directory, "receipt.json"), supervisor.run())
    return 0


def look(directory: str) -> int:
    """Return how it stands."""
    try:
        found = claim(directory, fcntl.LOCK_SH)
    except FileNotFoundError:
        return ABSENT
    if not found:
        return RUNNING
    if os.path.exists(os.path.join(directory, "receipt.json")):
        return ENDED
    return UNKNOWN if found[1] else UNCLAIMED


def close(directory: str) -> int:
    """Remove DIR, whose name changes first: nobody can begin in there any more."""
    import shutil

    closed, launch_id = directory + ".closed", os.fsencode(os.path.basename(directory))
    try:
        found = claim(directory)
    except FileNotFoundError:
        end_marked(launch_id)
        shutil.rmtree(closed, ignore_errors=True)
        return 0
    if not found:
        return RUNNING
    held, said = found
    if not said:
        os.write(held, b"- closed")
    end_marked(launch_id)  # whatever its directory says: its command may have written that
    shutil.rmtree(closed, ignore_errors=True)
    os.rename(directory, closed)
    shutil.rmtree(closed, ignore_errors=True)
    return 0


def matching(pattern: str) -> list[str]:
    """Return the paths that match, the last by name first; with `first:` before the pattern the other way round."""
    is_first = pattern.startswith(FIRST)
    pattern = pattern[len(FIRST) :] if is_first else pattern
    if not any(sign in pattern for sign in "*?["):
        return [pattern]
    import glob

    return sorted(glob.glob(pattern), reverse=not is_first)


def part(target: str, pattern: str, offset: int, size: int) -> int:
    """Copy a part of a file to where it can be fetched; nothing that is no regular file is waited for."""
    for path in matching(pattern):
        content = None
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    content = os.pread(descriptor, size, offset)
            finally:
                os.close(descriptor)
        if content is not None:
            with open(made(target), "wb") as file:
                file.write(content)
            return 0
    return NO_FILE


def main(verb: str, where: str, *rest: str) -> int:
    """Do what the command line says."""
    directory = os.path.abspath(where)
    try:
        if verb == "part":
            name, pattern, offset, size = rest
            return part(os.path.join(directory, name), pattern, int(offset), int(size))
        if verb == "run":
            return run(directory, *rest)
        return {"look": look, "close": close}[verb](directory)
    except OSError as error:
        print(error.strerror or error)  # noqa: T201  to whoever asked
        return SPOILT


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
