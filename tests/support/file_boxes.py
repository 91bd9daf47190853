# ruff: noqa: ASYNC240  small files of tests
"""Machines of simulated runs that have files and can be broken.

They know `append FILE TEXT`, `cat FILE`, `check FILE LINES`, `count`, `fail`, and how a workspace is cleared.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.sandbox.held import CLEAR
from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent
from providers.sandboxes.base import BoxLost, Capability, CreateFailed, ExecResult
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.snapshots import Taken, restore, take
from schemas.snapshots import Manifest
from schemas.values import BlobRef


class FileBox:
    """One machine: a directory."""

    def __init__(self, provider: FileBoxes, label: str) -> None:
        self._provider = provider
        self._label = label
        self.root = provider.root / f"{label}-{provider.made}"
        self.root.mkdir()
        self.tests: list[str] = []
        self.is_alive = True

    async def put(self, source: Path, path: str, *, mode: int = 0o644) -> None:
        """Take in a test."""
        del mode
        self._check()
        self.tests.append(f"{path}: {source.read_text()}")

    async def get(self, path: str, target: Path, *, max_bytes: int) -> int:
        """Give nothing out."""
        raise NotImplementedError

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:
        """Do what the few commands say."""
        del timeout_s
        self._check()
        if command == ":":  # is it there?
            return ExecResult(0, "", 0, truncated=False, ended_by="exit", duration_s=0.01)
        self._provider.ledger.start("tool", key, label=self._label)
        self._provider.commands += 1
        verb, *words = command.rpartition("export TESTS; ")[2].split(" ", 2)
        match "clear" if command == CLEAR else verb:
            case "append":
                with (self.root / words[0]).open("a") as file:
                    file.write(f"{words[1]}\n")
                output = "done\n"
            case "cat":
                output = (self.root / words[0]).read_text()
            case "check":
                is_good = (self.root / words[0]).read_text().count("\n") == int(words[1]) and bool(self.tests)
                return ExecResult(0 if is_good else 1, "", 0, truncated=False, ended_by="exit", duration_s=0.01)
            case "fail":
                return ExecResult(3, "no such package", 15, truncated=False, ended_by="exit", duration_s=0.01)
            case "clear":
                for path in self.root.iterdir():
                    path.unlink()
                output = ""
            case _:
                output = f"{self._provider.commands}\n"
        self._provider.after_command(self)
        return ExecResult(0, output, len(output), truncated=False, ended_by="exit", duration_s=0.01)

    async def snapshot(self, blobs: Blobs, previous: Manifest | None = None) -> Taken:
        """Keep the directory."""
        self._check()
        if self._provider.refuses_snapshots:
            msg = "no room for a snapshot"
            raise Permanent(msg)
        return take(self.root, blobs, previous=previous)

    async def allow(self, hosts: Sequence[str], phase: str = "") -> None:
        """Reach nothing: there is no network to be kept out of."""
        del hosts, phase
        self._check()

    async def restore(self, ref: BlobRef, blobs: Blobs) -> None:
        """Fill the directory."""
        self._check()
        restore(ref, blobs, self.root)

    async def destroy(self) -> None:
        """Say what was in it, and remove it."""
        if self.is_alive:
            self.is_alive = False
            self._provider.left[self._label] = {p.name: p.read_text() for p in sorted(self.root.iterdir())}
        shutil.rmtree(self.root, ignore_errors=True)
        self._provider.alive.discard(self._label)

    def die(self) -> None:
        """End as a machine does that runs out of memory."""
        self.is_alive = False
        shutil.rmtree(self.root, ignore_errors=True)

    def _check(self) -> None:
        if not self.is_alive:
            msg = f"sandbox {self._label} is gone"
            raise BoxLost(msg)


class FileBoxes:
    """Makes `FileBox`es; `left` is what was in each that was destroyed, by label."""

    name = "files"
    capabilities: frozenset[Capability] = frozenset({"files", "snapshots"})

    def __init__(self, root: Path, ledger: Path) -> None:
        self.root = root
        self.ledger = Ledger(str(ledger))
        self.made = 0
        self.commands = 0
        self.left: dict[str, dict[str, str]] = {}
        self.after_command: Callable[[FileBox], None] = lambda _: None
        self.refuses_snapshots = False
        self.makes_at_most = 100
        self.create_s = 0.0
        self.alive: set[str] = set()

    async def check(self) -> None:
        """Accept every machine."""

    async def create(self, label: str) -> FileBox:
        """Make one."""
        if self.made >= self.makes_at_most:
            msg = "no more machines here"
            raise CreateFailed(msg)
        await asyncio.sleep(self.create_s)
        self.made += 1
        self.alive.add(label)
        return FileBox(self, label)

    async def reap(self) -> int:
        """Find nothing."""
        return 0

    async def aclose(self) -> None:
        """Give the ledger back."""
        self.ledger.close()
