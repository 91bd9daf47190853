# ruff: noqa: ASYNC240  small files of tests
"""Directories of the host that sandboxes see: read-only, and only those that say they may be seen."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import ValidationError

from gym_bus.shared_directories import MARKER, NotShown, marked
from providers.sandboxes import Box, SandboxUnavailable, make_provider
from schemas.sandboxes import Bubblewrap, Docker, SharedDirectory
from tests.support.boxes import DOCKER, provider_of
from tests.support.engine import IMAGE, USER

Make = Callable[[Path, Path], Awaitable[Box]]


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a directory that every user can reach."""
    home = Path(tempfile.mkdtemp(prefix="gym-bus-shared-"))
    home.chmod(0o755)
    (home / "tool").mkdir(mode=0o755)
    (home / "tool" / "hello").write_text("#!/bin/sh\necho hello from the host\n")
    (home / "tool" / "hello").chmod(0o755)
    (home / "tool" / "out").symlink_to("/etc/shadow")
    yield home
    shutil.rmtree(home)


@pytest.fixture(params=["bubblewrap", DOCKER])
async def make(request: pytest.FixtureRequest, tmp_path: Path, home: Path) -> AsyncIterator[Make]:
    """Return what makes a box that is to see a directory; it ends before `home` is removed."""
    assert home.is_dir()
    await (await provider_of(request.param, tmp_path / "probe")).aclose()
    async with AsyncExitStack() as stack:

        async def made(source: Path, work_dir: Path) -> Box:
            shared = (SharedDirectory(source=str(source), at="/opt/a/tool"),)
            config = (
                Bubblewrap(shared=shared)
                if request.param == "bubblewrap"
                else Docker(image=IMAGE, user=USER, shared=shared)
            )
            provider = make_provider(config, work_dir)
            stack.push_async_callback(provider.aclose)
            return await provider.create(f"shared.{os.getpid()}.b1")

        yield made


async def said(box: Box, command: str) -> str:
    return (await box.exec(command, key="k", timeout_s=20)).output


async def test_it_is_seen_and_not_written_to(make: Make, home: Path, tmp_path: Path) -> None:
    """Programs in it run, nothing in it can be changed, links lead where they lead in the sandbox."""
    (home / "tool" / MARKER).touch()
    box = await make(home / "tool", tmp_path / "boxes")
    assert await said(box, "/opt/a/tool/hello") == "hello from the host\n"
    assert "Read-only" in await said(box, "touch /opt/a/tool/mine; echo >/opt/a/tool/hello; rm /opt/a/tool/hello")
    assert "root:" not in await said(box, "cat /opt/a/tool/out")
    assert sorted(path.name for path in (home / "tool").iterdir()) == [MARKER, "hello", "out"]


@pytest.mark.parametrize("why", ["no marker", "linked marker", "not there", "work_dir", "home", "a file"])
async def test_what_is_not_shown(
    make: Make, home: Path, tmp_path: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its owner's word, or with our own files in it, no machine is made."""
    source, work_dir = home / "tool", tmp_path / "boxes"
    if why == "linked marker":
        (source / MARKER).symlink_to("/etc/passwd")
    elif why != "no marker":
        (source / MARKER).touch()
    match why:
        case "not there":
            source = home / "other"
        case "work_dir":
            work_dir = source / "data" / "boxes"
        case "home":
            monkeypatch.setenv("HOME", str(source))
        case "a file":
            source /= "hello"
    with pytest.raises(SandboxUnavailable, match="is not shown to sandboxes"):
        await make(source, work_dir)


def test_what_is_missing_is_named_with_what_to_do(home: Path) -> None:
    """A directory that is not there is told from one that does not say that it may be shown."""
    for source, why in (
        (home / "other", "there is no such directory$"),
        (home / "tool" / "hello", "it is no directory$"),
        (home / "tool", f"it holds no file {MARKER}, .*: `touch {home}/tool/{MARKER}`$"),
    ):
        with pytest.raises(NotShown, match=why):
            marked(source)


@pytest.mark.skipif(os.getuid() != 0, reason="only root's boxes have other users")
async def test_one_that_the_boxes_user_cannot_reach(home: Path, tmp_path: Path) -> None:
    (home / "tool" / MARKER).touch()
    home.chmod(0o700)
    provider = make_provider(
        Bubblewrap(shared=(SharedDirectory(source=str(home / "tool"), at="/opt/t"),)), tmp_path / "boxes"
    )
    with pytest.raises(SandboxUnavailable, match="cannot pass"):
        await provider.create("r.1.b1")


@pytest.mark.parametrize(
    "places", [("/usr/x",), ("/opt",), ("/opt/../etc",), ("/opt/a", "/opt/a"), ("/opt/a", "/opt/a/b")]
)
def test_places_that_cannot_be(places: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        Bubblewrap(shared=tuple(SharedDirectory(source="/x", at=at) for at in places))
