"""Boxes of every provider on this machine, for tests of what they promise."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path

import pytest

from providers.sandboxes import SandboxProvider, SandboxUnavailable, make_provider
from schemas.config import Bubblewrap, Docker, Inline, SandboxConfig, SandboxLimits, UnsafeLocal
from tests.support.engine import IMAGE, PODMAN_IMAGE, PODMAN_SOCKET, USER, needs_engine

LIMITS = SandboxLimits(output_bytes=4096)


def config_of(kind: str, ledger_path: str | None = None, limits: SandboxLimits = LIMITS) -> SandboxConfig:
    match kind:
        case "bubblewrap":
            return Bubblewrap(limits=limits, ledger_path=ledger_path)
        case "docker":
            return Docker(image=IMAGE, user=USER, limits=limits, ledger_path=ledger_path)
        case "podman":
            return Docker(image=PODMAN_IMAGE, socket=PODMAN_SOCKET, limits=limits, ledger_path=ledger_path)
        case "unsafe_local":
            return UnsafeLocal(limits=limits, ledger_path=ledger_path)
        case _:
            return Inline(limits=limits, ledger_path=ledger_path)


async def provider_of(
    kind: str, path: Path, ledger_path: str | None = None, limits: SandboxLimits = LIMITS
) -> SandboxProvider:
    """Return a provider; without what it needs the test is skipped, an engine excepted."""
    provider = make_provider(config_of(kind, ledger_path, limits), path)
    if kind in {"docker", "podman"}:
        return provider  # a test fails if there is no engine
    try:
        await provider.check()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    return provider


DOCKER = pytest.param("docker", marks=needs_engine)
PODMAN = pytest.param("podman", marks=[needs_engine, pytest.mark.slow])
ENCLOSED = ("bubblewrap", DOCKER, PODMAN)
"""Those whose machines have a file system of their own."""
LOCAL = (*ENCLOSED, "unsafe_local")
"""Those that start processes on this host."""


def processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and int(path.parent.name) != os.getpid():
            found.append(line)
    return found


async def until_gone(text: str) -> bool:
    """Wait for the kernel to end what was killed."""
    for _ in range(200):
        if not processes_with(text):
            return True
        await asyncio.sleep(0.01)
    return False


def unique_sleep() -> str:
    """Return a sleep that no other process on this machine sleeps."""
    return f"sleep 987{uuid.uuid4().int % 10**9}"
