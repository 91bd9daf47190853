"""The Python that is brought along: which one of the host; that a copy of it runs anywhere, and leaves nothing to its commands."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.harnesses.installing import InstallFailed, install
from adapters.harnesses.installing.directories import CARRY, Carried
from adapters.harnesses.installing.pins import pinned, shared_with
from adapters.harnesses.installing.pythons import find_python
from adapters.harnesses.openhands import OPENHANDS

HERE = ".".join(map(str, sys.version_info[:2]))
TELLS = """
import json, os, ssl, sqlite3, subprocess, sys
shell = subprocess.run(["/bin/sh", "-c", "env"], capture_output=True, text=True, check=True).stdout
again = subprocess.run([sys.executable, "-c", "import ssl; print(1)"], capture_output=True, text=True, check=True).stdout
print(json.dumps([sys.prefix, sys.path[0], sys.executable, shell, again]))
"""


def says(path: Path, version: str, build: str = "x") -> Path:
    """Make a program that answers as a Python of this version does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{json.dumps([str(path), version, build])}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a host on which there is no Python but what a test puts into `path` and `pyenv`."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_the_best_version_that_there_is(nothing: Path) -> None:
    """On the PATH before what pyenv has; a shim that answers with nothing, or with another version, is passed over."""
    newest = says(nothing / "pyenv/versions/3.12.10/bin/python3.12", "3.12")
    says(nothing / "pyenv/versions/3.12.9/bin/python3.12", "3.12")
    assert find_python("it", ("3.12", "3.13")).program == str(newest)
    shim = says(nothing / "path/python3.12", "3.11")
    other = says(nothing / "path/python3.13", "3.13")
    assert find_python("it", ("3.12", "3.13")).program == str(other)
    shim.write_text("#!/bin/sh\nexit 127\n")
    assert find_python("it", ("3.12", "3.13")).program == str(other)
    says(shim, "3.12")
    assert find_python("it", ("3.12", "3.13")).program == str(shim)


def test_a_host_without_one(nothing: Path) -> None:
    """It is said what was looked for, where, and what to do."""
    with pytest.raises(
        InstallFailed, match=r"openhands needs Python 3.12 or 3.13, and this host has none: python3.12, python3.13 on"
    ):
        find_python("openhands", ("3.12", "3.13"))
    says(nothing / "path/python3.13", "3.13")
    with pytest.raises(InstallFailed, match="this host has none"):
        find_python("it", ("3.12",))


def test_one_that_is_named(nothing: Path) -> None:
    """It is taken, wherever it lies, or it is said why it cannot be."""
    named = says(nothing / "else/python", "3.12")
    assert find_python("it", ("3.12",), named).program == str(named)
    with pytest.raises(
        InstallFailed, match=r"it needs Python 3.13, and .*/else/python \(GYM_BUS_AGENT_PYTHON\) is Python 3.12"
    ):
        find_python("it", ("3.13",), named)
    with pytest.raises(InstallFailed, match="cannot be run as a Python"):
        find_python("it", ("3.13",), nothing / "no")


async def test_nothing_is_installed_where_there_is_none(nothing: Path) -> None:
    with pytest.raises(InstallFailed, match="name its interpreter in GYM_BUS_AGENT_PYTHON"):
        await shared_with(OPENHANDS, nothing / "home")
    assert not (nothing / "home").exists()


def test_packages_are_for_one_version() -> None:
    keys = {pinned(OPENHANDS, version).key(None) for version in ("3.12", "3.13")}
    assert len(keys) == 2
    assert pinned(OPENHANDS, "3.12", "/a").key(None) == pinned(OPENHANDS, "3.12", "/b").key(None)


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the Python that runs the tests."""
    directory = tmp_path_factory.mktemp("carried")
    subprocess.run([sys.executable, "-I", str(CARRY)], cwd=directory, check=True, timeout=120)
    return directory


def test_a_copy_runs_where_it_lies(carried: Path) -> None:
    """It finds its packages and what it was built with; its commands see nothing of it, and their own libraries."""
    variables = {"PATH": os.defpath, "GYM_BUS_PACKAGES": "/packages", "LD_LIBRARY_PATH": "/of/the/task"}
    command = [f"{carried}/bin/python3", "-I", "-c", TELLS]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, timeout=60)
    prefix, first, executable, shell, again = json.loads(done.stdout)
    assert (prefix, first, executable, again) == (str(carried), "/packages", f"{carried}/bin/python3", "1\n")
    assert "LD_LIBRARY_PATH=/of/the/task\n" in shell
    assert not [
        line for line in shell.splitlines() if "GYM_BUS" in line or (str(carried) in line and "PWD" not in line)
    ]
    assert not (carried / "lib" / f"python{HERE}" / "site-packages").exists()


def test_a_system_that_cannot_run_it(carried: Path, tmp_path: Path) -> None:
    """It is said so, and nothing is begun."""
    start = Path(shutil.copy(carried / "bin" / "python3", tmp_path))
    (tmp_path / "python").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "python").chmod(0o755)
    done = subprocess.run([start, "-c", "print(1)"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (126, "")
    assert "error: the Python that was brought along cannot run in this sandbox" in done.stderr


async def test_a_copy_is_made_once_for_each_build(nothing: Path) -> None:
    """What makes it is run by the interpreter itself; another build of the same version is another copy."""
    marks = nothing / "mark"
    program = says(nothing / "path/python3.12", "3.12")
    program.write_text(f"#!/bin/sh\necho x >>{marks}; /bin/mkdir bin\n")
    first = await install(Carried(str(program), "3.12.1 (one)"), nothing / "home")
    assert await install(Carried(str(program), "3.12.1 (one)"), nothing / "home") == first
    assert await install(Carried(str(program), "3.12.1 (two)"), nothing / "home") != first
    assert marks.read_text() == "x\nx\n"
    assert (first / "bin").is_dir()
