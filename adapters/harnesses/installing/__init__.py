"""Installing: what harnesses need, pinned, once a host, in directories that sandboxes are shown read-only."""

from __future__ import annotations

from adapters.harnesses.installing.directories import (
    InstallFailed,
    Pinned,
    install,
    installs_of,
    node_binary,
    under_way,
)
from adapters.harnesses.installing.pins import pinned, shared_with

__all__ = ["InstallFailed", "Pinned", "install", "installs_of", "node_binary", "pinned", "shared_with", "under_way"]
