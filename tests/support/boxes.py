"""Boxes of every provider on this machine, for tests of what they promise."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from providers.sandboxes import SandboxProvider, SandboxUnavailable, make_provider
from schemas.sandboxes import (
    E2B,
    Apptainer,
    Bubblewrap,
    Daytona,
    Docker,
    Enroot,
    Inline,
    OpenSandbox,
    SandboxConfig,
    SandboxLimits,
    UnsafeLocal,
)
from tests.support.engine import IMAGE, PODMAN_IMAGE, PODMAN_SOCKET, USER, needs_engine
from tests.support.sandbox_doubles.faults import KEY

LIMITS = SandboxLimits(output_bytes=4096)
REMOTE = ("e2b", "opensandbox", "daytona")
"""Machines at somebody else's: in tests, at a double of him."""
doubles_at: dict[str, str] = {}


def stand_ins() -> dict[str, str]:
    """Make programs that stand in for Apptainer and Enroot, the file their calls are recorded in, and an image for both."""
    place = Path(tempfile.mkdtemp(prefix="gym-bus-stand-ins-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    made = {"image": str(place / "image.sqsh"), "record": str(place / "record")}
    (place / "image.sqsh").write_bytes(b"hsqs")
    for name in ("apptainer", "enroot"):
        path, script = place / name, Path(__file__).with_name(f"{name}_stand_in.py")
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -I {script} {made["record"]} "$@"\n')
        path.chmod(0o755)
        made[name] = str(path)
    return made


STAND_INS = stand_ins()


def config_of(kind: str, ledger_path: str | None = None, limits: SandboxLimits = LIMITS) -> SandboxConfig:  # noqa: PLR0911
    match kind:
        case "bubblewrap":
            return Bubblewrap(limits=limits, ledger_path=ledger_path)
        case "docker":
            return Docker(image=IMAGE, user=USER, limits=limits, ledger_path=ledger_path)
        case "podman":
            return Docker(image=PODMAN_IMAGE, socket=PODMAN_SOCKET, limits=limits, ledger_path=ledger_path)
        case "e2b":
            url = doubles_at["e2b"]
            return E2B(api_url=url, sandbox_url=url, create_timeout_s=20, limits=limits, ledger_path=ledger_path)
        case "opensandbox":
            return OpenSandbox(
                image="any:1",
                domain=doubles_at["opensandbox"],
                create_timeout_s=20,
                limits=limits,
                ledger_path=ledger_path,
            )
        case "daytona":
            return Daytona(api_url=doubles_at["daytona"], create_timeout_s=20, limits=limits, ledger_path=ledger_path)
        case "unsafe_local":
            return UnsafeLocal(limits=limits, ledger_path=ledger_path)
        case "apptainer":
            return Apptainer(
                image=STAND_INS["image"], binary=STAND_INS["apptainer"], limits=limits, ledger_path=ledger_path
            )
        case "enroot":
            return Enroot(image=STAND_INS["image"], binary=STAND_INS["enroot"], limits=limits, ledger_path=ledger_path)
        case _:
            return Inline(limits=limits, ledger_path=ledger_path)


async def provider_of(
    kind: str, path: Path, ledger_path: str | None = None, limits: SandboxLimits = LIMITS
) -> SandboxProvider:
    """Return a provider; without what it needs the test is skipped, an engine excepted."""
    return await provider_with(config_of(kind, ledger_path, limits), path)


async def provider_with(config: SandboxConfig, path: Path) -> SandboxProvider:
    """Return the provider of a configuration; the same."""
    provider = make_provider(config, path, KEY)
    if config.type in {"docker", *REMOTE}:
        return provider  # a test fails if there is no engine, or no double
    try:
        await provider.check()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    return provider


DOCKER = pytest.param("docker", marks=needs_engine)
PODMAN = pytest.param("podman", marks=[needs_engine, pytest.mark.slow])
ENCLOSED = ("bubblewrap", DOCKER, PODMAN, "apptainer", "enroot")
"""Those whose machines have a file system of their own."""
RUN_AS_US = ("unsafe_local", "apptainer", "enroot")
"""Those whose commands have this process's user; of ours, if that is root, they are root."""
PAUSABLE = ("bubblewrap", DOCKER, PODMAN)
LOCAL = (*ENCLOSED, "unsafe_local")
"""Those that start processes on this host."""


def process_ids() -> list[str]:
    """Return those that are there now."""
    with os.scandir("/proc") as entries:
        return [entry.name for entry in entries if entry.name.isdecimal()]


def processes_with(text: str) -> list[str]:
    found = []
    for pid in process_ids():
        with suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in line and int(pid) != os.getpid():
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
