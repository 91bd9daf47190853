"""What a machine is shown of its host for an agent's own program: that program, pinned, installed once a host, read-only."""

from __future__ import annotations

from pathlib import Path

from adapters.harnesses.installing import installs_of, shared_with
from adapters.harnesses.table import installed_for
from gym_bus.errors import Permanent
from schemas.events import SandboxRequested
from schemas.sandboxes import Bubblewrap, Docker, SandboxConfig


class Tooling:
    """Installs under `directory`: the data directory, or one that several share (`GYM_BUS_PROGRAMS_DIR`)."""

    def __init__(self, directory: Path, python: Path | None = None) -> None:
        """See the class; `python` is what is brought along for programs that need a newer one than sandboxes have."""
        self._home = installs_of(directory)
        self._python = python

    async def sandbox_for(self, request: SandboxRequested) -> SandboxConfig:
        """Return what is to be made: the sandbox that was asked for, with the program's directories.

        Raises `InstallFailed`, `Permanent`.
        """
        sandbox = request.sandbox
        if request.harness is None:
            return sandbox
        if not isinstance(sandbox, Bubblewrap | Docker):
            msg = f"a sandbox of type {sandbox.type} cannot be shown {request.harness}: choose bubblewrap or docker"
            raise Permanent(msg)
        harness = installed_for(request.harness)
        shared = await shared_with(harness, self._home, package=request.package, brought=self._python)
        return sandbox.model_copy(update={"shared": (*sandbox.shared, *shared)})
