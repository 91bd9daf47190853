"""From a sandbox's configuration to its provider; a provider's module is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, cast

from providers.sandboxes.base import SandboxProvider, SandboxUnavailable
from schemas.sandboxes import RemoteSandbox, SandboxConfig

PROVIDERS: Final[Mapping[str, str]] = {
    "apptainer": "providers.sandboxes.apptainer:ApptainerProvider",
    "bubblewrap": "providers.sandboxes.bubblewrap:BubblewrapProvider",
    "daytona": "providers.sandboxes.daytona.provider:DaytonaProvider",
    "docker": "providers.sandboxes.docker:DockerProvider",
    "e2b": "providers.sandboxes.e2b.provider:E2BProvider",
    "enroot": "providers.sandboxes.enroot:EnrootProvider",
    "inline": "providers.sandboxes.inline:InlineProvider",
    "opensandbox": "providers.sandboxes.opensandbox.provider:OpenSandboxProvider",
    "unsafe_local": "providers.sandboxes.unsafe_local:UnsafeLocalProvider",
}
"""Each takes its configuration and a directory for its files; one of remote machines its maker's key as well."""
CLIENTS: Final = frozenset({"e2b", "opensandbox"})
"""Packages of makers of machines, which not everybody needs."""


def make_provider(config: SandboxConfig, work_dir: Path, api_key: str | None = None) -> SandboxProvider:
    """Return the provider of `config.type`; it keeps its files under `work_dir` and makes none before the first box.

    Raises `SandboxUnavailable` if its maker's client is not installed.
    """
    module, _, name = PROVIDERS[config.type].partition(":")
    try:
        constructor = cast("Callable[..., SandboxProvider]", getattr(import_module(module), name))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in CLIENTS:
            raise
        raise SandboxUnavailable(
            f"sandbox={config.type} needs the package {package}, which is not installed: pip install 'gym-bus[cloud]'"
        ) from error
    if isinstance(config, RemoteSandbox):
        return constructor(config, work_dir, api_key)
    return constructor(config, work_dir)
