"""From a harness to what is installed for it, and to what its sandbox is shown."""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path
from typing import Final

from adapters.harnesses.base import Harness
from adapters.harnesses.installing.directories import Carried, Chosen, InstallFailed, Pinned, install
from adapters.harnesses.installing.pythons import find_python
from schemas.harnesses import AgentPackage
from schemas.sandboxes import SharedDirectory

LOCKS: Final = Path(__file__).resolve().parent.parent / "locks"
NODE: Final = Pinned("node", "npm", LOCKS / "node")
PLACES: Final = "/opt/gym-bus"


def pinned(harness: Harness, python: str = "", interpreter: str = "") -> Pinned:
    """Return the pins of `harness`; `python` is the sandbox's, as `3.11`, None of which is needed for npm."""
    ecosystem = harness.packages[0].ecosystem
    python = python if ecosystem == "pypi" else ""
    return Pinned(harness.name, ecosystem, LOCKS / harness.name, python, interpreter, harness.left_out)


async def shared_with(
    harness: Harness,
    home: Path,
    *,
    python: str | None = None,
    package: AgentPackage | None = None,
    brought: Path | None = None,
) -> tuple[SharedDirectory, ...]:
    """Install what `harness` needs, and return what its sandbox is to be shown: itself at `/opt/gym-bus/<name>`, Node at `…/node`.

    One without packages is its user's own, and nothing is installed for it. A `package` that a run's configuration names is installed
    too, and shown at `…/program`; if it is the harness's own it takes the place of what is pinned. A Python that has to be brought
    along is shown at `…/python`: a copy of `brought`, or of one that is found on this host. `python` is the version of the sandbox's
    Python, by default that of this host's /usr/bin/python3. Raises `InstallFailed`.
    """
    if harness.needs_python:
        return await _with_python(harness, home, brought)
    ecosystems = {one.ecosystem for one in (*harness.packages[:1], *((package,) if package else ()))}
    node = await install(NODE, home) if "npm" in ecosystems else None
    if "pypi" in ecosystems:
        python = python or python_of("/usr/bin/python3")
    shared: list[SharedDirectory] = []
    if harness.packages:
        is_own = package is not None and package.name == harness.packages[0].name
        own = await install(
            _chosen(harness, package, python) if package and is_own else pinned(harness, python or ""), home, node
        )
        package = None if is_own else package
        shared.append(SharedDirectory(source=str(own), at=f"{PLACES}/{harness.name}"))
    if package:
        chosen = Chosen("program", package.ecosystem, package.name, package.version, python or "")
        shared.append(SharedDirectory(source=str(await install(chosen, home, node)), at=f"{PLACES}/program"))
    if node and (harness.needs_node or package):
        shared.append(SharedDirectory(source=str(node), at=f"{PLACES}/node"))
    return tuple(shared)


def _chosen(harness: Harness, package: AgentPackage, python: str | None) -> Chosen:
    """Return a harness's own package in another version than the one that is pinned."""
    python = python or "" if package.ecosystem == "pypi" else ""
    return Chosen(harness.name, package.ecosystem, package.name, package.version, python, harness.left_out)


async def _with_python(harness: Harness, home: Path, brought: Path | None) -> tuple[SharedDirectory, ...]:
    """Return a harness's packages, for exactly the version that is brought along, and that Python."""
    found = await asyncio.to_thread(find_python, harness.name, harness.needs_python, brought)
    carried = await install(Carried(found.program, found.build), home)
    own = await install(pinned(harness, found.version, found.program), home)
    return (
        SharedDirectory(source=str(own), at=f"{PLACES}/{harness.name}"),
        SharedDirectory(source=str(carried), at=f"{PLACES}/python"),
    )


def python_of(program: str) -> str:
    """Return the version of a Python of this host, as `3.11`; raises `InstallFailed`. Blocking."""
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallFailed(f"install_failed: {program} cannot be run: {error}") from error
    if not (found := re.match(r"Python (\d+\.\d+)", told)):
        raise InstallFailed(f"install_failed: {program} does not say its version: {told[:100]!r}")
    return found[1]
