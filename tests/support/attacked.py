"""Boxes of the real providers for tests that attack them, and the red agent: somebody who runs one command after the other in one."""

from __future__ import annotations

import itertools
import secrets
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from providers.sandboxes import Box, ExecResult, SandboxProvider, make_provider
from providers.sandboxes.rooms import Room
from schemas.sandboxes import Bubblewrap, Docker, NetworkPolicy, SandboxLimits
from tests.support.carried_python import carry, command_of
from tests.support.engine import IMAGE, PODMAN_IMAGE, PODMAN_SOCKET, USER, needs_engine

REAL_KINDS: Final = [
    "bubblewrap",
    pytest.param("docker", marks=needs_engine),
    pytest.param("podman", marks=[needs_engine, pytest.mark.slow]),
]
RUN: Final = secrets.token_hex(4)
"""Begins the labels of boxes: an engine may have tests of somebody else in it, too."""
LIMITS: Final = SandboxLimits(output_bytes=262_144)
_names = itertools.count(1)


@asynccontextmanager
async def provider_of(
    kind: str, path: Path, limits: SandboxLimits = LIMITS, network: NetworkPolicy | None = None
) -> AsyncIterator[SandboxProvider]:
    """Give a real provider; a test fails where it cannot make machines."""
    network = network or NetworkPolicy()
    config = {
        "bubblewrap": Bubblewrap(limits=limits, network=network),
        "docker": Docker(image=IMAGE, user=USER, limits=limits, network=network),
        "podman": Docker(image=PODMAN_IMAGE, user=USER, socket=PODMAN_SOCKET, limits=limits, network=network),
    }[kind]
    provider = make_provider(config, path)
    try:
        await provider.check()
        yield provider
    finally:
        await provider.aclose()


def room_of(box: Box) -> Room:
    """Return the directories of a box on this host."""
    shell = vars(box)["_shell"]
    room = vars(shell).get("room") or vars(shell)["_room"]
    assert isinstance(room, Room)
    return room


class RedAgent:
    """An agent without a model: what it wants to try is known beforehand."""

    def __init__(self, box: Box, kind: str) -> None:
        """Drive `box`, which a provider of this kind made."""
        self.box = box
        self._python = "python3" if kind == "bubblewrap" else ""

    async def run(self, command: str, *, timeout_s: float = 30) -> ExecResult:
        """Run one command."""
        return await self.box.exec(command, key=f"red{next(_names)}", timeout_s=timeout_s)

    async def said(self, command: str, *, timeout_s: float = 30) -> str:
        """Return what one command printed."""
        return (await self.run(command, timeout_s=timeout_s)).output

    def python(self) -> str:
        """Return what starts a Python in the box: its own, or one that is brought along."""
        if not self._python:
            carry(room_of(self.box).work)
            self._python = command_of("/box")
        return self._python

    async def script(self, text: str, *arguments: str, timeout_s: float = 30) -> ExecResult:
        """Run a Python script."""
        return await self.run(f"{self.python()} -c {shlex.join([text, *arguments])}", timeout_s=timeout_s)
