# ruff: noqa: ASYNC240  a few calls for each directory that is made
"""One directory for each set of pins, named by what is in it: made once, whole or not at all, and never changed.

Packages come from wherever this machine's own npm and pip are configured to fetch them; lock files pin versions and hashes, and name no
address. Nothing of a package is run while it is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal

from gym_bus.errors import GymBusError
from gym_bus.locks import is_locked, try_lock
from gym_bus.shared_directories import MARKER
from providers.sandboxes.removal import remove_tree
from providers.sandboxes.rooms import reachable_parent

PART: Final = ".part-"
LOG_HEAD_BYTES: Final = 1024
LOG_TAIL_BYTES: Final = 3072
LOCK_POLL_S: Final = 0.2
DEADLINE_S: Final = 900.0
ENDED_WITHIN_S: Final = 10.0
_ARCHITECTURES: Final = {"x86_64": "x64", "aarch64": "arm64"}
CARRY: Final = Path(__file__).with_name("carry_python.py")
_CREDENTIALS: Final = re.compile(r"(//)[^/\s@]+@")


class InstallFailed(GymBusError):
    """What a harness needs could not be installed; the message holds both ends of the installer's log."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A set of pins: the directory `lock` holds package-lock.json (npm) or requirements.txt (pypi).

    `python` is the version, as `3.11`, of the interpreter in the sandbox, for which packages are taken; `interpreter` is one of this
    host that has that version, where the one that is brought along is a copy of it. What is in `left_out` is removed once it is
    installed, and has to be there.
    """

    name: str
    ecosystem: Literal["npm", "pypi"]
    lock: Path
    python: str = ""
    interpreter: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files that decide what is installed."""
        names = ("package.json", "package-lock.json") if self.ecosystem == "npm" else ("requirements.txt",)
        return tuple(self.lock / name for name in names)

    @property
    def contents(self) -> dict[str, str]:
        """Return what an installer is given, by the names of files. Blocking."""
        return {path.name: path.read_text() for path in self.files}

    def key(self, node: Path | None) -> str:
        """See `key_of`. Blocking."""
        return key_of(self, node)


@dataclass(frozen=True, slots=True)
class Chosen:
    """A package that a run's configuration names, in exactly this version. What it depends on is what there is when it is installed.

    What is in `left_out` is removed if it is there.
    """

    name: str
    ecosystem: Literal["npm", "pypi"]
    package: str
    version: str
    python: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def contents(self) -> dict[str, str]:
        """Return what an installer is given, by the names of files."""
        if self.ecosystem == "npm":
            return {"package.json": json.dumps({"private": True, "dependencies": {self.package: self.version}})}
        return {"requirements.txt": f"{self.package}=={self.version}\n"}

    def key(self, node: Path | None) -> str:
        """See `key_of`."""
        return key_of(self, node)


@dataclass(frozen=True, slots=True)
class Carried:
    """A Python of this host, which sandboxes are shown a copy of: `interpreter`, which says of itself that it is `python`."""

    interpreter: str
    python: str
    name: str = "python"
    ecosystem: Literal["python"] = "python"
    left_out: ClassVar[tuple[str, ...]] = ()

    @property
    def contents(self) -> dict[str, str]:
        """Return what makes the copy, by the name of its file. Blocking."""
        return {CARRY.name: CARRY.read_text()}

    def key(self, node: Path | None) -> str:
        """See `key_of`. Blocking."""
        return key_of(self, node)


Wanted = Pinned | Chosen | Carried


def key_of(wanted: Wanted, node: Path | None) -> str:
    """Return the digest of all that decides what is installed: pins, what is left out, Node, Python, this platform. Blocking."""
    digest = hashlib.sha256()
    for part in (wanted.ecosystem, wanted.python, platform.machine(), *platform.libc_ver(), node.name if node else ""):
        digest.update(f"{part}\0".encode())
    for content in (*wanted.contents.values(), *wanted.left_out):
        digest.update(content.encode())
    return digest.hexdigest()[:16]


def node_binary(place: str | Path) -> str:
    """Return the program in a directory that holds Node's pins, here or in a sandbox."""
    return f"{place}/node_modules/node-linux-{_ARCHITECTURES.get(platform.machine(), 'x64')}/bin/node"


def installs_of(data_dir: Path) -> Path:
    """Return where a host keeps what it installs; sandboxes made by root have other users, who must be able to pass to it."""
    wanted = data_dir.absolute() / "harnesses"
    return reachable_parent(wanted) if os.getuid() == 0 else wanted


async def install(wanted: Wanted, home: Path, node: Path | None = None, *, deadline_s: float = DEADLINE_S) -> Path:
    """Return the directory below `home` that holds `wanted`; it is made if it is not there. Raises `InstallFailed`.

    `node` is what was installed of the Node that npm runs with. Of several processes one installs, and the others wait for it.
    """
    key = await asyncio.to_thread(wanted.key, node)
    place = home / f"{wanted.name}-{key}"
    try:
        async with asyncio.timeout(deadline_s):
            if not (place / MARKER).exists():
                with contextlib.ExitStack() as held:
                    held.callback(os.close, await _locked(home, key))
                    if not (place / MARKER).exists():
                        await _make(wanted, place, node)
    except TimeoutError as error:
        raise InstallFailed(f"install_failed: {wanted.name} was not installed in {deadline_s:g} s") from error
    except OSError as error:
        raise InstallFailed(f"install_failed: {wanted.name}: {error}") from error
    return place


def under_way(home: Path) -> list[str]:
    """Return the names of what processes of this host are installing below `home` right now. Blocking."""
    found = set()
    for part in home.glob(f"{PART}*"):
        name, key, _ = part.name.removeprefix(PART).rsplit("-", 2)
        if is_locked(home / f".lock-{key}"):
            found.add(name)
    return sorted(found)


async def _locked(home: Path, key: str) -> int:
    home.mkdir(parents=True, exist_ok=True, mode=0o755)
    found = home.lstat()
    if found.st_uid != os.getuid() or home.is_symlink():
        raise InstallFailed(f"install_failed: {home} is not a directory of ours")
    home.chmod(0o711)
    while (lock := try_lock(home / f".lock-{key}")) is None:  # noqa: ASYNC110  another process holds it
        await asyncio.sleep(LOCK_POLL_S)
    return lock


async def _make(wanted: Wanted, place: Path, node: Path | None) -> None:
    """Install beside the place, then rename; what a killed process left is removed first. The lock is held."""
    for left in place.parent.glob(f"{PART}{place.name}-*"):
        await asyncio.to_thread(remove_tree, left)
    part = place.parent / f"{PART}{place.name}-{secrets.token_hex(4)}"
    part.mkdir(mode=0o755)
    try:
        for name, content in wanted.contents.items():
            (part / name).write_text(content)
        command, environment = _command(wanted, node, part)
        await _run(wanted.name, command, environment, part)
        for name in wanted.left_out:
            (part / name).unlink(missing_ok=isinstance(wanted, Chosen))  # another version may not have it
        await asyncio.to_thread(_open_up, part)
        if place.exists():  # without a marker: nobody was shown it
            await asyncio.to_thread(remove_tree, place)
        (part / MARKER).write_text(f"{wanted.name}: programs of packages, nothing secret\n")
        part.rename(place)
    except BaseException:
        await asyncio.to_thread(remove_tree, part)
        raise


def _command(wanted: Wanted, node: Path | None, part: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return what puts `wanted` into the directory in which it is run, and its variables."""
    if isinstance(wanted, Carried):
        return [wanted.interpreter, "-I", CARRY.name], {}
    return _npm(wanted, node) if wanted.ecosystem == "npm" else _pip(wanted, part)


def _npm(wanted: Pinned | Chosen, node: Path | None) -> tuple[list[str], Mapping[str, str]]:
    npm = shutil.which("npm")
    if not npm:
        raise InstallFailed("install_failed: npm is not installed or not on the PATH; it comes with Node.js")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--no-update-notifier"]
    found = os.environ.get("PATH", os.defpath)
    return [npm, "ci" if isinstance(wanted, Pinned) else "install", *options], {
        "PATH": f"{Path(node_binary(node)).parent}:{found}" if node else found
    }


def _pip(wanted: Pinned | Chosen, part: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return how pip is called: by the interpreter itself that will run the packages, if it is of this host."""
    interpreter = wanted.interpreter if isinstance(wanted, Pinned) else ""
    options = [
        "--quiet", "--disable-pip-version-check", "--no-input", "--no-warn-conflicts", "--only-binary", ":all:",
        *(("--require-hashes", "--no-deps") if isinstance(wanted, Pinned) else ()),  # a lock has all of them
        *(() if interpreter else ("--python-version", wanted.python)),
    ]  # fmt: skip
    by = ("--python", interpreter) if interpreter else ()
    target = ["--target", str(part / "site"), "-r", str(part / "requirements.txt")]
    return [sys.executable, "-m", "pip", *by, "install", *options, *target], {}


async def _run(name: str, command: list[str], environment: Mapping[str, str], part: Path) -> None:
    """Run an installer in a session of its own, with its output in a file; all of it ends with a failure."""
    log = part / ".install.log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GYM_BUS_")}
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", 'umask 022; exec "$@"', "install", *command),  # uvloop has no `umask`
            cwd=part,
            env={**kept, **environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        code = await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait_for(process.wait(), ENDED_WITHIN_S)
        raise
    if code:
        said = _ends_of(await asyncio.to_thread(log.read_bytes))
        raise InstallFailed(f"install_failed: {name}: `{' '.join(command[:2])}` ended with {code}: {said}")
    log.unlink()


def _ends_of(log: bytes) -> str:
    """Return what an error says of a log: its beginning and its end, without credentials."""
    kept = [log] if len(log) <= LOG_HEAD_BYTES + LOG_TAIL_BYTES else [log[:LOG_HEAD_BYTES], log[-LOG_TAIL_BYTES:]]
    return _CREDENTIALS.sub(r"\1", "\n[…]\n".join(part.decode(errors="replace").strip() for part in kept))


def _open_up(directory: Path) -> None:
    """Let everybody read what is in it, and nobody but us write. Blocking."""
    directory.chmod(0o755)
    for parent, names, files in os.walk(directory):
        for name in (*names, *files):
            path = Path(parent, name)
            mode = path.lstat().st_mode
            if not path.is_symlink():
                path.chmod((mode | 0o444 | (0o111 if mode & 0o100 else 0)) & 0o755)
