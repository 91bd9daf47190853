"""What an agent's own program keeps for itself goes from one real machine to the next, and what it told is not told again there."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from actors.sandbox import homes
from actors.sandbox.held import HeldBox
from adapters.harnesses.asking import HOME
from adapters.harnesses.base import Trace
from adapters.harnesses.pi import reader
from adapters.harnesses.running import Place, written_before
from gym_bus.blobs import MemoryBlobs
from gym_bus.errors import Retryable
from providers.sandboxes import SandboxProvider
from providers.sandboxes.snapshots import TooLarge
from tests.support.boxes import provider_of

LABEL = f"homes.{os.getpid()}.b"
FILL = (
    f"mkdir -p {HOME}/.agent/sessions && cd {HOME}/.agent && printf 'a\\nb\\n' > sessions/1.jsonl && chmod 600 sessions/1.jsonl"
    " && ln -s sessions/1.jsonl last && mkfifo pipe && head -c 3000000 /dev/zero > state.db && echo work > /box/file"
)
LOOK = f"cd {HOME}/.agent && cat last && stat -c '%a' sessions/1.jsonl && stat -c '%s' state.db && cat /box/file && ls -A {HOME}"


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of("bubblewrap", tmp_path / "boxes")
    yield provider
    await provider.aclose()


async def shown(box: Any, command: str) -> str:
    done = await box.exec(command, key=f"look {command}", timeout_s=60)
    assert done.exit_code == 0, done.output
    return str(done.output)


async def test_both_the_workspace_and_the_programs_own_files_are_in_the_next_machine(provider: SandboxProvider) -> None:
    """With links and rights; nothing of the way there is left behind."""
    blobs = MemoryBlobs()
    first = await provider.create(f"{LABEL}1")
    await shown(first, FILL)
    before = await shown(first, LOOK)
    saved = await HeldBox(first, blobs, "b1").keep("q", with_home=True)
    assert saved.home
    assert await shown(first, LOOK) == before
    second = await provider.create(f"{LABEL}2")
    await HeldBox(second, blobs, "b2").restore(saved.snapshot, saved.home)
    assert await shown(second, LOOK) == before
    assert before == "a\nb\n600\n3000000\nwork\n.agent\n"
    for box in (first, second):
        assert "packed" not in await shown(box, "ls -A /tmp")


async def test_a_checkpoint_is_of_the_workspace_alone_unless_more_is_asked_for(provider: SandboxProvider) -> None:
    box = await provider.create(f"{LABEL}1")
    saved = await HeldBox(box, MemoryBlobs(), "b1").keep("q")
    assert saved.home is None


async def test_a_program_that_keeps_too_much_or_what_cannot_be_read(
    provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said; the machine is well, and nothing is left in it."""
    box = await provider.create(f"{LABEL}1")
    await shown(box, f"mkdir -p {HOME} && head -c 100000 /dev/urandom > {HOME}/large")
    monkeypatch.setattr(homes, "HOME_MAX_BYTES", 1000)
    with pytest.raises(TooLarge):
        await homes.keep_home(box, MemoryBlobs(), "q")
    monkeypatch.setattr(homes, "PACK", "raise SystemExit('no room')")
    with pytest.raises(Retryable, match="no room"):
        await homes.keep_home(box, MemoryBlobs(), "q2")
    assert "packed" not in await shown(box, "ls -A /tmp")


async def test_what_a_session_holds_already_is_not_told_again(provider: SandboxProvider) -> None:
    """Of several files it is the last by name; one that is not there holds nothing."""
    box: Any = await provider.create(f"{LABEL}1")
    await shown(box, "mkdir -p /tmp/s && printf 12345 > /tmp/s/b.jsonl && printf 1 > /tmp/s/a.jsonl")
    assert await written_before(box, Trace("/tmp/s/*.jsonl", reader), "k1") == Place(5, b"12345")
    assert await written_before(box, Trace("/tmp/none/*.jsonl", reader), "k2") == Place()
    assert await written_before(box, Trace("stdout", reader), "k3") == Place()
