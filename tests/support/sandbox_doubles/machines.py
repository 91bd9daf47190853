"""What stands behind a double: namespaces of this host, in which processes really run, and which end as a whole.

Its process ids are its own, so that what is killed in it cannot be anything of this host's. Commands enter by file descriptors of
the namespaces, never by a process id that may have been given to something else.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

NAMESPACES = {"pid": "--pid", "mnt": "--mount", "ipc": "--ipc", "uts": "--uts"}
IS_ROOT = os.getuid() == 0
USERS = {"root": 0, "user": 1000, "other": 1001}
PASSWD = "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in USERS.items())
LINKS = ("bin", "sbin", "lib", "lib64")
BIND = ("--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev")


class DoubleMachine:
    """A few processes, and files under `directory`: its /home and /tmp, and /box once somebody makes it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        for name in ("home/user", "home/other", "tmp", "etc"):
            (directory / name).mkdir(parents=True)
        for name in LINKS:
            (directory / name).symlink_to(f"usr/{name}")
        (directory / "etc/passwd").write_text(PASSWD)
        (directory / "tmp").chmod(0o1777)
        if IS_ROOT:
            for name in ("user", "other"):
                os.chown(directory / "home" / name, USERS[name], USERS[name])
        self._fds: dict[str, int] = {}
        self._entered: list[asyncio.subprocess.Process] = []
        self._boot()

    def _boot(self) -> None:
        read_end, write_end = os.pipe()
        own = str(self._directory)
        self._process = subprocess.Popen(
            [
                *("bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"),
                *(() if IS_ROOT else ("--unshare-user",)),
                *("--bind", own, "/", *BIND, "--info-fd", str(write_end)),
                *("/bin/sh", "-c", "echo ready; exec sleep infinity"),
            ],
            pass_fds=[write_end],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={"PATH": os.defpath},
        )
        os.close(write_end)
        with os.fdopen(read_end) as info:
            pid = json.load(info)["child-pid"]
        assert self._process.stdout
        assert self._process.stdout.readline() == b"ready\n", "is bubblewrap installed?"
        names = {**NAMESPACES, **({} if IS_ROOT else {"user": "--user"})}
        self._fds = {flag: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name, flag in names.items()}
        self._space = os.fstat(self._fds["--pid"]).st_ino

    async def start(
        self,
        argv: Sequence[str],
        *,
        user: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> asyncio.subprocess.Process:
        """Start a process in the machine; raises `KeyError` for an unknown user."""
        uid = USERS[user]
        enter = [f"{flag}=/proc/{os.getpid()}/fd/{fd}" for flag, fd in self._fds.items()]
        identity = ["-S", str(uid), "-G", str(uid)] if IS_ROOT else ["--preserve-credentials"]
        home = "/root" if user == "root" else f"/home/{user}"
        start = ["/bin/sh", "-c", 'cd "$0" 2>/dev/null || cd /; exec "$@"', cwd or home]
        started = await asyncio.create_subprocess_exec(
            "nsenter",
            *enter,
            *identity,
            *start,
            *argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env={"PATH": os.defpath, "HOME": home, "USER": user, "LANG": "C.UTF-8", **(env or {})},
        )
        self._entered = [one for one in self._entered if one.returncode is None]
        self._entered.append(started)
        return started

    async def ask(self, script: str, *arguments: str, user: str, given: bytes = b"") -> tuple[int, bytes]:
        """Run a line of shell; return exit code and output."""
        process = await self.start(["/bin/sh", "-c", script, "sh", *arguments], user=user, stdin=subprocess.PIPE)
        output, _ = await process.communicate(given)
        return process.returncode or 0, output

    def pids(self) -> list[int]:
        """Return this host's ids of the machine's processes."""
        found = []
        for path in Path("/proc").glob("[0-9]*/ns/pid"):
            with suppress(OSError):
                if path.stat().st_ino == self._space:
                    found.append(int(path.parts[2]))
        return found

    def freeze(self, *, is_on: bool) -> None:
        """Stop every process where it is, or let them go on."""
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if is_on else signal.SIGCONT)
        if not is_on:
            self._wake()

    def kill(self) -> None:
        """End everything in it, at once and for ever."""
        self._process.kill()
        self._wake()
        self._process.communicate()
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {"--pid": os.open("/dev/null", os.O_RDONLY)}  # no namespace: whoever enters now is refused

    def _wake(self) -> None:
        """Let go on what stands outside and waits for a process inside: it stops when that one is stopped."""
        for one in self._entered:
            if one.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Be another machine in the same place: the files stay."""
        self.kill()
        os.close(self._fds["--pid"])
        self._boot()
