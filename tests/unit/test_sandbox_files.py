# ruff: noqa: ASYNC240  tests look at files
"""`files`: what goes into a machine comes out of it as it was, and nothing else does; on each provider that declares it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from gym_bus.errors import Permanent
from providers.sandboxes import Box, BoxLost, SandboxProvider
from providers.sandboxes.capabilities import NoSuchFile, WithFiles
from providers.sandboxes.snapshots import TooLarge
from tests.support.boxes import ENCLOSED, LOCAL, RUN_AS_US, provider_of

SECRET = "a secret of this host"
MIB = 1024 * 1024
LABEL = f"files.{os.getpid()}.b1"


class BoxWithFiles(Box, WithFiles):
    """What the tests talk to."""


@pytest.fixture(params=LOCAL)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def provider(kind: str, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of(kind, tmp_path / "boxes")
    assert "files" in provider.capabilities
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> BoxWithFiles:
    box = await provider.create(LABEL)
    assert isinstance(box, WithFiles)
    return cast("BoxWithFiles", box)


async def said(box: Box, command: str) -> str:
    done = await box.exec(command, key="k", timeout_s=30)
    assert done.exit_code == 0, done.output
    return done.output


def file_of(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / f"source-{os.urandom(4).hex()}"
    path.write_bytes(content)
    return path


async def got(box: WithFiles, path: str, tmp_path: Path, max_bytes: int = 100 * MIB) -> bytes:
    target = tmp_path / f"target-{os.urandom(4).hex()}"
    size = await box.get(path, target, max_bytes=max_bytes)
    content = target.read_bytes()
    assert (size, target.stat().st_mode & 0o7777) == (len(content), 0o600)
    return content


@pytest.mark.parametrize(
    "content", [b"", b"\n", bytes(range(256)) * 300, os.urandom(3_000_001)], ids=["none", "line", "bytes", "random"]
)
async def test_what_goes_in_comes_out(box: BoxWithFiles, tmp_path: Path, content: bytes) -> None:
    await box.put(file_of(tmp_path, content), "file")
    assert await said(box, "wc -c <file") == f"{len(content)}\n"
    assert await got(box, "file", tmp_path) == content


@pytest.mark.parametrize(
    "name",
    ["a b", "it's", "-n", "new\nline", "один", "a/b/c/d", "$(id)", "back\\slash", "*", ".hidden", "a;b", "'\"", "./x"],
)
async def test_names_are_names(box: BoxWithFiles, tmp_path: Path, name: str) -> None:
    await box.put(file_of(tmp_path, name.encode()), name)
    assert await got(box, name, tmp_path) == name.encode()
    assert (await said(box, "find . -type f | wc -l")).strip() in {"1", "2"}  # a new line counts twice


async def test_a_file_is_the_commands_own(box: BoxWithFiles, tmp_path: Path) -> None:
    """It belongs to the user that commands run as, with the rights that were asked for, and so do the directories it is in."""
    await box.put(file_of(tmp_path, b"#!/bin/sh\necho ran\n"), "bin/run", mode=0o755)
    await box.put(file_of(tmp_path, b"plain"), "plain", mode=0o4600)
    assert await said(box, "bin/run && echo more >>bin/run && rm bin/run && rmdir bin && touch plain") == "ran\n"
    assert (await said(box, "ls -ln plain")).split()[::2][:2] == ["-rw-------", (await said(box, "id -u")).strip()]


async def test_an_absolute_path_is_the_boxs(box: BoxWithFiles, tmp_path: Path, kind: str) -> None:
    place = str(tmp_path / "there") if kind == "unsafe_local" else "/tmp/there"
    await box.put(file_of(tmp_path, b"in /tmp"), place)
    assert await said(box, f"cat {place}") == "in /tmp"
    assert await got(box, place, tmp_path) == b"in /tmp"
    if kind != "unsafe_local":
        assert not Path(place).exists(), "of the box, not of this host"
        with pytest.raises(Permanent, match=r"Read-only|ermission denied|can't create"):
            await box.put(file_of(tmp_path, b"x"), "/usr/x")


async def test_a_file_is_replaced_and_a_link_as_well(box: BoxWithFiles, tmp_path: Path) -> None:
    await said(
        box, "echo old >file; echo kept >other; ln -s other link; mkfifo pipe; mkdir directory; ln -s directory to"
    )
    for name in ("file", "link", "pipe"):
        await box.put(file_of(tmp_path, b"new"), name)
        assert await said(box, f"cat {name}") == "new"
    assert await said(box, "cat other") == "kept\n"
    for name in ("directory", "to"):
        with pytest.raises(Permanent, match="it is a directory"):
            await box.put(file_of(tmp_path, b"new"), name)
    with pytest.raises(Permanent):
        await box.put(file_of(tmp_path, b"new"), "file/below")
    assert await said(box, "ls directory; ls -A | grep -c gym-bus || true") == "0\n", "nothing half done is left"


@pytest.mark.alone
async def test_what_is_no_file_is_refused_at_once(box: BoxWithFiles, tmp_path: Path, kind: str) -> None:
    await said(
        box,
        "mkfifo pipe; mkdir directory; ln -s nowhere dangling; ln -s loop loop; ln -s pipe to-pipe; touch no; chmod 0 no",
    )
    names = [
        "pipe",
        "directory",
        "dangling",
        "loop",
        "to-pipe",
        "missing",
        "directory/missing",
        "/dev/zero",
        "/dev/tty",
        "pipe/x",
    ]
    if kind not in RUN_AS_US or (
        os.getuid() and kind != "enroot"
    ):  # Enroot's stand-in makes us root in its user namespace
        names.append("no")
    for name in names:
        began = time.monotonic()
        with pytest.raises(NoSuchFile):
            await box.get(name, tmp_path / "target", max_bytes=1000)
        assert time.monotonic() - began < 3, name
        assert not (tmp_path / "target").exists()


async def test_a_socket_is_no_file(box: BoxWithFiles, tmp_path: Path, kind: str) -> None:
    if kind in {"docker", "podman"}:
        await said(
            box,
            "(nc -lU socket >/dev/null 2>&1 &) ; for n in 1 2 3 4 5 6 7 8 9; do [ -S socket ] || sleep 0.1; done; true",
        )
        if (await box.exec("[ -S socket ]", key="k", timeout_s=5)).exit_code:
            return  # this busybox makes none
    else:
        await said(box, "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'")
    with pytest.raises(NoSuchFile):
        await box.get("socket", tmp_path / "target", max_bytes=1000)


@pytest.mark.parametrize("path", ["", "/", "a/", "nul \0", "half \ud800"])
async def test_what_is_no_path_is_refused(box: BoxWithFiles, tmp_path: Path, path: str) -> None:
    with pytest.raises(Permanent):
        await box.get(path, tmp_path / "target", max_bytes=1000)
    with pytest.raises(Permanent):
        await box.put(file_of(tmp_path, b"x"), path)
    assert await said(box, "ls -A") == ""


async def test_the_bound_is_kept_and_nothing_is_left(box: BoxWithFiles, tmp_path: Path) -> None:
    await said(box, "head -c 1000 /dev/zero >file")
    assert len(await got(box, "file", tmp_path, max_bytes=1000)) == 1000
    with pytest.raises(TooLarge):
        await box.get("file", tmp_path / "target", max_bytes=999)
    assert not (tmp_path / "target").exists()
    assert await got(box, "file", tmp_path, max_bytes=1000) == bytes(1000)


async def test_a_file_that_grows_is_bounded(box: BoxWithFiles, tmp_path: Path) -> None:
    await said(box, ": >big; (while :; do head -c 100000 /dev/zero; done >>big 2>/dev/null &)")
    for _ in range(5):
        with pytest.raises(TooLarge):
            await until_too_large(box, tmp_path)
    assert not list(tmp_path.glob("target"))


async def until_too_large(box: WithFiles, tmp_path: Path) -> None:
    while True:
        await got(box, "big", tmp_path, max_bytes=2 * MIB)


async def test_a_large_file_takes_little_memory(box: BoxWithFiles, tmp_path: Path) -> None:
    """200 MB in and out, larger than what a command may write, with a few MB of this process's memory."""
    source, block = tmp_path / "large", os.urandom(MIB)
    with source.open("wb") as file:
        for n in range(200):
            file.write(n.to_bytes(4, "big") + block[4:])
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_kib()
    began = time.monotonic()
    await box.put(source, "large")
    assert await box.get("large", tmp_path / "back", max_bytes=200 * MIB) == 200 * MIB
    assert time.monotonic() - began < 60
    assert peak_kib() - before < 40 * 1024
    with source.open("rb") as one, (tmp_path / "back").open("rb") as other:
        assert hashlib.file_digest(one, "sha256").digest() == hashlib.file_digest(other, "sha256").digest()


def peak_kib() -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


async def test_files_go_beside_a_command(box: BoxWithFiles, tmp_path: Path) -> None:
    await box.put(file_of(tmp_path, b"first"), "file")
    running = asyncio.ensure_future(box.exec("sleep 2; cat file", key="k", timeout_s=10))
    await asyncio.sleep(0.2)
    await box.put(file_of(tmp_path, b"second"), "file")
    assert await got(box, "file", tmp_path) == b"second"
    assert not running.done()
    assert (await running).output == "second"


async def test_many_files_go_at_once(box: BoxWithFiles, tmp_path: Path) -> None:
    async def there_and_back(n: int) -> None:
        content = os.urandom(100_000 + n)
        await box.put(file_of(tmp_path, content), f"d{n % 3}/{n}")
        assert await got(box, f"d{n % 3}/{n}", tmp_path) == content

    await asyncio.gather(*(there_and_back(n) for n in range(12)))


async def test_a_command_that_is_killed_spoils_no_file(box: BoxWithFiles, tmp_path: Path) -> None:
    """Everything in the box is killed at a command's deadline; what was under way is carried again."""
    await said(box, "echo")
    content = os.urandom(8 * MIB)
    source = file_of(tmp_path, content)
    for _ in range(3):
        carried = asyncio.ensure_future(box.put(source, "file"))
        assert (await box.exec("sleep 60", key="k", timeout_s=0.05)).ended_by == "timeout"
        await carried
        assert await got(box, "file", tmp_path) == content


async def test_a_box_that_is_gone_gives_and_takes_nothing(box: BoxWithFiles, tmp_path: Path) -> None:
    await box.destroy()
    with pytest.raises(BoxLost, match="gone"):
        await box.put(file_of(tmp_path, b"x"), "file")
    with pytest.raises(BoxLost, match="gone"):
        await box.get("file", tmp_path / "target", max_bytes=10)
    assert not (tmp_path / "target").exists()


async def test_destroying_meanwhile_is_no_hang(provider: SandboxProvider, box: BoxWithFiles, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(100 * MIB))
    carried = asyncio.ensure_future(box.put(source, "file"))
    await asyncio.sleep(0.05)
    await box.destroy()
    async with asyncio.timeout(15):
        results = await asyncio.gather(carried, return_exceptions=True)
    assert results[0] is None or isinstance(results[0], BoxLost | Permanent)
    assert (await (await provider.create(LABEL)).exec("true", key="k", timeout_s=10)).exit_code == 0


async def test_this_hosts_files_are_told_apart(box: BoxWithFiles, tmp_path: Path) -> None:
    """A source that is missing or no file, a target that is there already: refused, and the target is as it was."""
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "missing", tmp_path / "pipe", tmp_path):
        with pytest.raises(Permanent, match=str(source)):
            await box.put(source, "file")
    await said(box, "echo x >file")
    (tmp_path / "target").write_text("mine")
    with pytest.raises(Permanent, match="target"):
        await box.get("file", tmp_path / "target", max_bytes=10)
    assert (tmp_path / "target").read_text() == "mine"


@pytest.mark.parametrize("kind", ENCLOSED)
async def test_no_link_leads_out_of_the_machine(box: BoxWithFiles, tmp_path: Path) -> None:
    """Neither a link that stands, nor one that changes places with a directory as fast as it can, to read or to write."""
    vault = tmp_path / "vault"
    vault.mkdir(mode=0o777)
    tmp_path.chmod(0o755)
    vault.chmod(0o777)
    (vault / "file").write_text(SECRET)
    (vault / "file").chmod(0o644)
    await said(
        box, f"ln -s {vault}/file link; ln -s {vault} away; mkdir real; echo mine >real/file; ln -s {vault} aside"
    )
    for name in ("link", "away/file", f"{vault}/file", "/proc/1/root/etc/shadow"):
        with pytest.raises(NoSuchFile):
            await box.get(name, tmp_path / "target", max_bytes=1000)
    with pytest.raises(Permanent):
        await box.put(file_of(tmp_path, b"planted"), "away/planted")
    swap = "(while :; do mv real tmp; mv aside real; mv tmp aside; mv aside tmp; mv real aside; mv tmp real; done >/dev/null 2>&1 &)"
    await said(box, swap)
    for _ in range(30):
        for path in ("real/file", "aside/file"):
            try:
                assert SECRET.encode() not in await got(box, path, tmp_path)
            except (NoSuchFile, Permanent):
                continue
        try:
            await box.put(file_of(tmp_path, b"planted"), "real/planted")
        except Permanent:
            continue
    assert sorted(path.name for path in vault.iterdir()) == ["file"]
    assert (vault / "file").read_text() == SECRET
