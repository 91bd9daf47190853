"""A sandbox without a machine: it works out `echo $((…))` itself, for benchmarks and unit tests."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

from providers.arithmetic import BadExpression, DividedByZero, evaluate
from providers.sandboxes.base import BoxLost, Capability, ExecResult
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.processes import failed
from schemas.sandboxes import Inline

_COMMAND: Final = re.compile(r"echo \$\(\((.*)\)\)")


def run(command: str) -> ExecResult:
    """Return what a shell would say to `echo $((EXPR))`; anything else is a missing command (127)."""
    if not (found := _COMMAND.fullmatch(command)):
        return failed("only `echo $((EXPR))` can be run in the inline sandbox; set sandbox=bubblewrap for a shell")
    started = time.perf_counter()
    try:
        output = f"{evaluate(found[1])}\n"
    except DividedByZero as error:
        return failed(f"1: arithmetic expression: {error}: {found[1]!r}", exit_code=2)
    except BadExpression as error:
        return failed(f"1: arithmetic expression: {error}")
    return ExecResult(
        0, output, len(output), truncated=False, ended_by="exit", duration_s=time.perf_counter() - started
    )


class InlineBox:
    """One pretended machine; nothing is ever left of it."""

    def __init__(self, label: str, ledger: Ledger) -> None:
        self._label = label
        self._ledger = ledger
        self._is_alive = True

    @property
    def is_alive(self) -> bool:
        """Say whether the box was not destroyed yet."""
        return self._is_alive

    async def exec(self, command: str, *, key: str, timeout_s: float) -> ExecResult:  # noqa: ARG002  it never waits
        """Work out `command` at once."""
        if not self._is_alive:
            raise BoxLost(f"sandbox {self._label} was destroyed")
        self._ledger.start("tool", key, label=self._label)
        return run(command)

    async def destroy(self) -> None:
        """Refuse further commands."""
        self._is_alive = False


class InlineProvider:
    """Makes boxes out of nothing."""

    def __init__(self, config: Inline, work_dir: Path) -> None:  # noqa: ARG002  it needs no files
        self._ledger = Ledger(config.ledger_path)

    @property
    def name(self) -> str:
        """Return the provider's configuration type."""
        return "inline"

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what every machine of this provider can do beyond `Box`."""
        return frozenset()

    async def check(self) -> None:
        """Accept every machine."""

    async def create(self, label: str) -> InlineBox:
        """Return a box."""
        return InlineBox(label, self._ledger)

    async def reap(self) -> int:
        """Find nothing: no process ever leaves anything behind."""
        return 0

    async def aclose(self) -> None:
        """Close the ledger."""
        self._ledger.close()
