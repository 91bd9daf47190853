"""Which Python of this host is brought along for a harness that needs another one than sandboxes have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapters.harnesses.installing.directories import InstallFailed

TELLS: Final = (
    "import json, sys; print(json.dumps([sys.executable, '.'.join(map(str, sys.version_info[:2])), sys.version]))"
)
ANSWERS_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class HostPython:
    """An interpreter of this host: its path, its version as `3.12`, and what it says of how it was built."""

    program: str
    version: str
    build: str


def find_python(harness: str, wanted: tuple[str, ...], named: Path | None = None) -> HostPython:
    """Return the interpreter that is `named`, else the first that is found, of a version in `wanted`. Blocking; raises `InstallFailed`.

    Looked at are `python3.12` and its like on the PATH, then what pyenv has installed.
    """
    versions = " or ".join(wanted)
    if named is not None:
        found = _told_by(str(named.absolute() if named.exists() else named))
        if found is None or found.version not in wanted:
            is_what = f"is Python {found.version}" if found else "cannot be run as a Python"
            msg = (
                f"install_failed: {harness} needs Python {versions}, and {named} (GYM_BUS_AGENT_PYTHON) {is_what}; hosts read that "
                "when they start, after `gym-bus bus down`"
            )
            raise InstallFailed(msg)
        return found
    for program, version in _candidates(wanted):
        found = _told_by(program)
        if found is not None and found.version == version:
            return found
    names = ", ".join(f"python{version}" for version in wanted)
    msg = (
        f"install_failed: {harness} needs Python {versions}, and this host has none: {names} on the PATH, and pyenv, were looked at; "
        "install one, or name its interpreter in GYM_BUS_AGENT_PYTHON"
    )
    raise InstallFailed(msg)


def _candidates(wanted: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for version in wanted:
        if program := shutil.which(f"python{version}"):
            yield program, version
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in wanted:
        for found in sorted(root.glob(f"versions/{version}*/bin/python{version}"), key=_numbers, reverse=True):
            yield str(found), version


def _numbers(program: Path) -> list[int]:
    """Return the version that pyenv calls a program's directory by, to be sorted by."""
    return [int(part) for part in re.findall(r"\d+", program.parent.parent.name)]


def _told_by(program: str) -> HostPython | None:
    """Return what a program says of itself; None for one that does not answer as a Python does."""
    try:
        told = subprocess.run(  # noqa: S603
            [program, "-I", "-c", TELLS], capture_output=True, text=True, timeout=ANSWERS_WITHIN_S, check=True
        )
        itself, version, build = json.loads(told.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return HostPython(str(itself), str(version), str(build))
