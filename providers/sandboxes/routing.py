"""From a sandbox's configuration to its provider; a provider's module is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from providers.sandboxes.base import SandboxProvider
from schemas.config import SandboxConfig

PROVIDERS: Final[Mapping[str, str]] = {
    "apptainer": "providers.sandboxes.apptainer:ApptainerProvider",
    "bubblewrap": "providers.sandboxes.bubblewrap:BubblewrapProvider",
    "docker": "providers.sandboxes.docker:DockerProvider",
    "enroot": "providers.sandboxes.enroot:EnrootProvider",
    "inline": "providers.sandboxes.inline:InlineProvider",
    "unsafe_local": "providers.sandboxes.unsafe_local:UnsafeLocalProvider",
}
"""Each takes its configuration and a directory for its files."""


def make_provider(config: SandboxConfig, work_dir: Path) -> SandboxProvider:
    """Return the provider of `config.type`; it keeps its files under `work_dir` and makes none before the first box."""
    module, _, name = PROVIDERS[config.type].partition(":")
    constructor = cast("Callable[[SandboxConfig, Path], SandboxProvider]", getattr(import_module(module), name))
    return constructor(config, work_dir)
