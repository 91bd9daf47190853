"""What installing promises: once, whole or not at all, whoever is killed; with a stand-in for npm, which is told what to do."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import pytest

from adapters.harnesses.acp import ACP
from adapters.harnesses.base import Harness
from adapters.harnesses.installing import InstallFailed, Pinned, install, installs_of, pinned, under_way
from adapters.harnesses.installing.directories import Chosen
from adapters.harnesses.installing.pins import LOCKS, NODE
from adapters.harnesses.table import HARNESSES
from gym_bus.shared_directories import MARKER
from providers.sandboxes.shared_directories import shown
from schemas.sandboxes import SharedDirectory
from tests.support.boxes import processes_with, unique_sleep, until_gone

HELD = """
import asyncio, sys
from pathlib import Path
from adapters.harnesses.installing import Pinned, install
print(asyncio.run(install(Pinned("tool", "npm", Path(sys.argv[1])), Path(sys.argv[2]))))
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    lock = tmp_path / "lock"
    lock.mkdir()
    (lock / "package.json").write_text("{}")
    (lock / "package-lock.json").write_text("{}")
    return lock


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the script that npm is; each of its starts is a line in `starts`."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return programs / "npm"


def npm_does(npm: Path, script: str) -> None:
    npm.write_text(f"#!/bin/sh\necho start >>{npm.parent}/starts\n{script}\n")
    npm.chmod(0o755)


def starts(npm: Path) -> int:
    return (npm.parent / "starts").read_text().count("start")


async def test_what_is_being_installed_can_be_seen(npm: Path, lock: Path, tmp_path: Path) -> None:
    """By its name while it lasts; not afterwards, and not what a killed one has left."""
    npm_does(npm, f"{MAKES}; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    home = tmp_path / "home"
    making = asyncio.create_task(install(Pinned("some-tool", "npm", lock), home))
    async with asyncio.timeout(30):
        while not under_way(home):
            await asyncio.sleep(0.05)
    assert under_way(home) == ["some-tool"]
    (tmp_path / "go").touch()
    place = await making
    assert under_way(home) == []
    (home / f".part-{place.name}-0a1b2c3d").mkdir()
    assert under_way(home) == []


MAKES = 'mkdir -p node_modules/.bin; umask 077; echo "$*" >node_modules/made; ln -s ../made node_modules/.bin/made'


async def test_it_is_made_once(npm: Path, lock: Path, tmp_path: Path) -> None:
    """Of eight at once one installs; afterwards nobody does. Others can read it, nobody can write, it may be shown."""
    npm_does(npm, f"{MAKES}; sleep 0.3")
    home = tmp_path / "home"
    places = await asyncio.gather(*(install(Pinned("tool", "npm", lock), home) for _ in range(8)))
    assert len({await install(Pinned("tool", "npm", lock), home), *places}) == 1
    assert starts(npm) == 1
    made = places[0] / "node_modules" / "made"
    assert made.read_text().split()[:2] == ["ci", "--ignore-scripts"]
    assert stat.S_IMODE(made.stat().st_mode) == 0o644
    assert sorted(path.name for path in places[0].iterdir()) == [
        MARKER,
        "node_modules",
        "package-lock.json",
        "package.json",
    ]
    shared = SharedDirectory(source=str(places[0]), at="/opt/tool")
    assert shown([shared], tmp_path / "boxes", to_others=False) == [(places[0].resolve(), "/opt/tool")]


async def test_other_pins_are_another_directory(npm: Path, lock: Path, tmp_path: Path) -> None:
    npm_does(npm, MAKES)
    first = await install(Pinned("tool", "npm", lock), tmp_path / "home")
    (lock / "package-lock.json").write_text('{"packages": {}}')
    assert await install(Pinned("tool", "npm", lock), tmp_path / "home") != first
    pins = Pinned("tool", "npm", lock)
    keys = {pins.key(None), pins.key(Path("/x/node-1")), Pinned("tool", "npm", lock, "3.12").key(None)}
    assert len(keys) == 3


async def test_what_is_left_out_is_removed_before_anybody_is_shown_it(npm: Path, lock: Path, tmp_path: Path) -> None:
    """Another place than without; and if it is not there, whoever declares it is wrong, and is told so."""
    npm_does(npm, f"{MAKES}; touch node_modules/pending")
    plain = await install(Pinned("tool", "npm", lock), tmp_path / "home")
    without = await install(Pinned("tool", "npm", lock, left_out=("node_modules/pending",)), tmp_path / "home")
    assert [(place / "node_modules" / "pending").exists() for place in (plain, without)] == [True, False]
    assert (without / "node_modules" / "made").exists()
    with pytest.raises(InstallFailed, match=r"install_failed: tool: .*node_modules/gone"):
        await install(Pinned("tool", "npm", lock, left_out=("node_modules/gone",)), tmp_path / "home")
    assert not list((tmp_path / "home").glob(".part*"))


async def test_a_package_that_a_run_names(npm: Path, tmp_path: Path) -> None:
    """There is no lock for it: what it depends on is what there is. Another version is another directory; no script of it is run."""
    npm_does(npm, MAKES)
    first = await install(Chosen("program", "npm", "@a/tool", "1.0.0"), tmp_path / "home")
    assert (first / "node_modules" / "made").read_text().split()[:2] == ["install", "--ignore-scripts"]
    assert json.loads((first / "package.json").read_text())["dependencies"] == {"@a/tool": "1.0.0"}
    assert await install(Chosen("program", "npm", "@a/tool", "1.0.1"), tmp_path / "home") != first
    assert await install(Chosen("program", "npm", "@a/tool", "1.0.0"), tmp_path / "home") == first
    assert starts(npm) == 2


async def test_a_failure_says_what_npm_said(npm: Path, lock: Path, tmp_path: Path) -> None:
    """Nothing is left, credentials are not in it, and the next try is a new one."""
    npm_does(npm, "echo half >half; echo 'npm error at https://me:secret@there/x' >&2; exit 7")
    with pytest.raises(InstallFailed, match="install_failed: tool") as failed:
        await install(Pinned("tool", "npm", lock), tmp_path / "home")
    assert "ended with 7" in str(failed.value)
    assert "npm error at https://there/x" in str(failed.value)
    assert [path.name for path in (tmp_path / "home").iterdir() if not path.name.startswith(".lock")] == []
    npm_does(npm, MAKES)
    assert (await install(Pinned("tool", "npm", lock), tmp_path / "home") / "node_modules" / "made").exists()


async def test_a_deadline_ends_all_of_it(npm: Path, lock: Path, tmp_path: Path) -> None:
    sleep = unique_sleep()
    npm_does(npm, f"{sleep} &\n{sleep}")
    with pytest.raises(InstallFailed, match="was not installed in"):
        await install(Pinned("tool", "npm", lock), tmp_path / "home", deadline_s=0.5)
    assert await until_gone(sleep)
    assert not list((tmp_path / "home").glob(".part*"))


async def test_one_that_was_killed_in_the_middle(npm: Path, lock: Path, tmp_path: Path) -> None:
    """Kill -9 of the process that installs: the next one removes what it left and makes it whole."""
    sleep = unique_sleep()
    npm_does(npm, f"echo half >half; {sleep}")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HELD, lock, tmp_path / "home")
    async with asyncio.timeout(20):
        while not processes_with(sleep):
            await asyncio.sleep(0.02)
    process.kill()
    await process.wait()
    npm_does(npm, MAKES)
    place = await install(Pinned("tool", "npm", lock), tmp_path / "home", deadline_s=20)
    assert not (place / "half").exists()
    assert not list((tmp_path / "home").glob(".part*"))
    await (await asyncio.create_subprocess_exec("pkill", "-f", sleep)).wait()


async def test_without_npm(lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InstallFailed, match="npm is not installed"):
        await install(Pinned("tool", "npm", lock), tmp_path / "home")


@pytest.mark.skipif(os.getuid() != 0, reason="only root's sandboxes have other users")
def test_other_users_can_pass_to_it(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    assert not installs_of(hidden).is_relative_to(hidden)


def without_funding(path: Path) -> str:
    """Return a file of pins without where a package's makers ask for money, which nothing is fetched from."""
    if path.suffix != ".json":
        return path.read_text()
    return json.dumps(
        json.loads(path.read_text(), object_hook=lambda found: {k: v for k, v in found.items() if k != "funding"})
    )


@pytest.mark.parametrize(
    "harness", [harness for harness in (*HARNESSES.values(), ACP) if harness.packages], ids=lambda harness: harness.name
)
def test_every_harness_is_pinned(harness: Harness) -> None:
    """Its lock names its packages in its versions, with hashes, and no address. One without packages is its user's own."""
    pins = pinned(harness, "3.11")
    for path in (*pins.files, *NODE.files):
        assert "://" not in without_funding(path), f"{path} names an address"
        assert '"resolved"' not in path.read_text()
    text = pins.files[-1].read_text()
    for package in harness.packages:
        exact = (
            f"{package.name}=={package.version}"
            if package.ecosystem == "pypi"
            else f'"{package.name}": "{package.version}"'
        )
        assert exact in text
    assert ("--hash=sha256:" in text) or ('"integrity": "sha512-' in text)
    assert pins.lock.is_relative_to(LOCKS)


async def test_another_version_need_not_have_what_is_left_out(npm: Path, tmp_path: Path) -> None:
    """Of the pinned one it has to be there: its row would say what is not so."""
    npm_does(npm, "touch there")
    made = await install(Chosen("program", "npm", "tool", "1.0.0", left_out=("there", "gone/too")), tmp_path / "home")
    assert not (made / "there").exists()
