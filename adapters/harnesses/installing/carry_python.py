"""Copies the Python that runs it into the directory where it is run, with the libraries that it needs, so that it runs there as well.

What is there then: `bin/python3`, which is to be started, and what it needs. It leaves nothing of itself to what its programs start:
its libraries are for it alone. Where its packages are is told by a variable, `GYM_BUS_PACKAGES`, which is gone when it has begun.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

NEEDED = "import bz2, ctypes, hashlib, lzma, sqlite3, ssl, zlib"
LEFT_OUT = (
    "test",
    "tests",
    "idlelib",
    "turtledemo",
    "tkinter",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "dist-packages",
)
OF_THE_SYSTEM = re.compile(
    r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|nsl|anl|mvec|BrokenLocale|thread_db))\.so\.\d+"
)
"""Libraries that belong to the system's own loader; everything else is brought along."""
START = """#!/bin/sh
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
said=$(LD_LIBRARY_PATH="$here/../lib" "$here/python" -I -S -c '' 2>&1) || {
    echo "error: the Python that was brought along cannot run in this sandbox, whose system lacks what it needs: $said" >&2
    exit 126
}
GYM_BUS_LIBRARIES=$LD_LIBRARY_PATH LD_LIBRARY_PATH="$here/../lib" exec "$here/python" "$@"
"""
BEGIN = """import os, sys
os.environ.pop("LD_LIBRARY_PATH", None)
if was := os.environ.pop("GYM_BUS_LIBRARIES", ""):
    os.environ["LD_LIBRARY_PATH"] = was
if packages := os.environ.pop("GYM_BUS_PACKAGES", ""):
    sys.path.insert(0, packages)
sys.executable = sys.executable.removesuffix("/python") + "/python3"
"""


def libraries_of(binaries: list[Path]) -> set[Path]:
    """Return the libraries that programs and modules are linked with; raises `RuntimeError` if one is missing."""
    said = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, timeout=30, check=False).stdout  # noqa: S603, S607
    if missing := re.findall(r"(\S+) => not found", said):
        msg = f"Python's modules need {', '.join(missing)}, which this machine does not have"
        raise RuntimeError(msg)
    return {Path(found) for found in re.findall(r"=> (/\S+) \(0x", said)}


def main() -> None:
    """Copy; then see that the copy runs."""
    target = Path.cwd()
    base = Path(getattr(sys, "_base_executable", "") or sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    copied = target / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copytree(
        stdlib,
        copied,
        symlinks=True,  # what a link leads to outside of it is nobody's there
        ignore=lambda _, names: [
            name for name in names if name in LEFT_OUT or name.startswith(("config-", "_test", "_tkinter"))
        ],
    )
    (target / "bin").mkdir()
    shutil.copy2(base, target / "bin" / "python")
    for library in libraries_of([base, *copied.glob("lib-dynload/*.so")]):
        if not OF_THE_SYSTEM.fullmatch(library.name):
            shutil.copy2(library, target / "lib" / library.name)
    start = target / "bin" / "python3"
    start.write_text(START)
    start.chmod(0o755)
    (copied / "sitecustomize.py").write_text(BEGIN)
    done = subprocess.run(  # noqa: S603
        [str(start), "-I", "-c", NEEDED],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode:
        sys.exit(f"error: the copy of {base} does not run: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    main()
