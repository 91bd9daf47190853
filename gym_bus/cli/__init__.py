"""The front door: `gym-bus`. Each command lives in a module of its own, imported when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and end the process with its exit code (docs/cli.md lists them)."""
    from gym_bus.cli.entry import run  # noqa: PLC0415  importing the package costs nothing

    sys.exit(run(arguments))
