"""`terminal`: commands that want to be talked to; on each provider that declares it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, SandboxProvider
from providers.sandboxes.capabilities import Terminal, WithTerminal
from tests.support.boxes import PAUSABLE, processes_with, provider_of, unique_sleep, until_gone

LABEL = f"terminal.{os.getpid()}.b1"


class BoxWithTerminal(Box, WithTerminal):
    """What the tests talk to."""


@pytest.fixture(params=PAUSABLE)
async def provider(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(request.param, tmp_path / "boxes", str(tmp_path / "ledger"))
    assert "terminal" in provider.capabilities
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> BoxWithTerminal:
    box = await provider.create(LABEL)
    assert isinstance(box, WithTerminal)
    return cast("BoxWithTerminal", box)


async def shown(terminal: Terminal, wanted: bytes) -> bytes:
    """Return what is shown up to `wanted`."""
    content = b""
    async with asyncio.timeout(20):
        while wanted not in content:
            content += await terminal.read(within_s=1)
    return content


async def test_it_is_a_terminal_and_answers(box: BoxWithTerminal, tmp_path: Path) -> None:
    terminal = await box.terminal(
        "test -t 0 && test -t 1 && echo is-one; stty size; read -r name; echo hello $name; exit 3", key="event-1"
    )
    assert b"24 80" in await shown(terminal, b"80")
    await terminal.write("Zoë\n".encode())
    assert "hello Zoë".encode() in await shown(terminal, b"hello Zo\xc3\xab")
    async with asyncio.timeout(10):
        while (await terminal.read(within_s=0.5)) != b"":
            pass
    await asyncio.sleep(0.3)
    assert await terminal.close() == 3
    assert await terminal.close() == 3
    [line] = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert (line["key"], line["label"]) == ("event-1", LABEL)
    with pytest.raises(Permanent, match="closed"):
        await terminal.write(b"x")


async def test_it_is_as_large_as_it_is_told(box: BoxWithTerminal) -> None:
    terminal = await box.terminal("stty size; read -r _; stty size; read -r _", key="k", rows=40, columns=132)
    assert b"40 132" in await shown(terminal, b"132")
    await terminal.resize(10, 20)
    await terminal.write(b"\n")
    assert b"10 20" in await shown(terminal, b"10 20")
    assert await terminal.close() is None


async def test_control_characters_are_signals(box: BoxWithTerminal) -> None:
    terminal = await box.terminal("trap 'echo caught; exit 7' INT; echo up; while :; do sleep 0.05; done", key="k")
    await shown(terminal, b"up")
    await terminal.write(b"\x03")
    await shown(terminal, b"caught")
    await asyncio.sleep(0.5)
    assert await terminal.close() == 7


async def test_closing_ends_all_of_it_and_commands_go_on_beside_it(box: BoxWithTerminal) -> None:
    sleep = unique_sleep()
    terminal = await box.terminal(f"setsid {sleep} & echo up; {sleep}", key="k")
    await shown(terminal, b"up")
    assert (await box.exec("echo beside", key="k", timeout_s=10)).output == "beside\n"
    assert await terminal.read(within_s=0.2) == b""
    assert processes_with(sleep)
    assert await terminal.close() is None
    assert await until_gone(sleep)
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"


async def test_what_nobody_reads_waits(box: BoxWithTerminal) -> None:
    """A flood is read piece by piece, each bounded."""
    terminal = await box.terminal("yes", key="k")
    for _ in range(50):
        assert 0 < len(await terminal.read(within_s=5)) <= 256 * 1024
    assert (await box.exec("echo on", key="k", timeout_s=10)).output == "on\n"
    assert await terminal.close() is None


async def test_a_box_that_is_gone_has_none(box: BoxWithTerminal) -> None:
    await box.destroy()
    with pytest.raises(BoxLost, match="gone"):
        await box.terminal("true", key="k")
