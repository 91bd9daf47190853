"""How an engine is told our filter of system calls: Docker in the request itself, podman by the name of a file on this host."""

from __future__ import annotations

import hashlib
from pathlib import Path

from providers.sandboxes.docker_engine import Engine
from providers.sandboxes.seccomp import container_profile


async def seccomp_option(engine: Engine, directory: Path) -> str:
    """Return the security option of a container's request; a file, if needed, is written to `directory`. Raises as `Engine.ask`."""
    version = await engine.ask("asking for the engine's version", engine.client.version())
    if not any("podman" in part.get("Name", "").lower() for part in version.get("Components") or ()):
        return f"seccomp={container_profile()}"
    profile = container_profile()
    path = directory / f"seccomp-{hashlib.sha256(profile.encode()).hexdigest()[:12]}.json"
    path.write_text(profile)
    return f"seccomp={path}"
