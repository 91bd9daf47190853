"""A Python that an agent brings along: this machine's own, with the libraries it needs, in a directory of a box that has none."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

PYTHON: Final = Path("/usr/bin/python3")
MODULES: Final = (
    "ctypes, errno, fcntl, json, mmap, os, platform, resource, select, signal, socket, struct, sys, threading, time"
)
"""What scripts in tests import; what these import comes along."""
_NEEDED: Final = f"""
import {MODULES}
import encodings.idna, http.client, json, sys, urllib.request
files = [m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]
print(json.dumps({{"stdlib": sys.path[1], "files": files}}))
"""


def carry(directory: Path) -> None:
    """Copy Python into `directory`/python; run it in the box with `command_of`."""
    said = subprocess.run([PYTHON, "-I", "-S", "-c", _NEEDED], capture_output=True, text=True, check=True, timeout=30)
    needed = json.loads(said.stdout)
    target = directory / "python"
    libraries = target / "lib"
    libraries.mkdir(parents=True)
    binaries = [PYTHON.resolve(), *(Path(name) for name in needed["files"] if name.endswith(".so"))]
    for path in {path for binary in binaries for path in _libraries_of(binary)}:
        shutil.copyfile(path, libraries / path.name)
        (libraries / path.name).chmod(0o755)
    shutil.copyfile(PYTHON.resolve(), target / "python3")
    (target / "python3").chmod(0o755)
    stdlib = Path(needed["stdlib"])
    for name in needed["files"]:
        path = Path(name)
        copy = target / "stdlib" / (path.relative_to(stdlib) if path.is_relative_to(stdlib) else path.name)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for path in (target, *target.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)


def command_of(box_directory: str) -> str:
    """Return what starts the Python that lies in `box_directory`/python, seen from inside."""
    here = f"{box_directory}/python"
    paths = f"{here}/stdlib:{here}/stdlib/lib-dynload"
    return (
        f"env PYTHONPATH={paths} PYTHONHOME={here} {here}/lib/{_loader()} --library-path {here}/lib {here}/python3 -S"
    )


def _libraries_of(binary: Path) -> list[Path]:
    said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True, timeout=10).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", said)]


def _loader() -> str:
    return next(path.name for path in _libraries_of(PYTHON.resolve()) if path.name.startswith("ld-linux"))
