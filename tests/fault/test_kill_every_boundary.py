"""Every declared boundary is killed at, by enumeration, and the run ends as if nothing had happened."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gym_bus import boundary
from gym_bus.memory_bus import Faults
from tests.fault.memory_run import Outcome, run_disturbed

NAMES = [name for name in boundary.BOUNDARIES if not name.startswith("projector.")]
NEEDS_A_LOSS = {"sandbox.decided"}


@cache
def undisturbed() -> Outcome:
    """Return what the run comes to when nothing happens."""
    with TemporaryDirectory() as directory:
        return run_disturbed(Path(directory) / "ledger")


def test_every_boundary_is_hit() -> None:
    """An undisturbed run passes every declared boundary (but those that only a loss leads to)."""
    assert set(NAMES) - set(undisturbed().hits) == NEEDS_A_LOSS


@pytest.mark.parametrize("what", ["host", "bus"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in NEEDS_A_LOSS])
def test_kill_at_boundary(name: str, what: str, tmp_path: Path) -> None:
    """Killing the host or the bus at a boundary changes nothing in the final table, and no effect happens twice."""
    hits = undisturbed().hits[name]
    for nth in sorted({1, hits // 2 or 1, hits}):
        outcome = run_disturbed(tmp_path / f"ledger-{nth}", [(name, nth)], what)  # type: ignore[arg-type]
        assert outcome.kills == 1, "the boundary was not hit"
        assert outcome.table == undisturbed().table
        assert outcome.finished == undisturbed().finished


def test_kill_while_a_loss_is_stated(tmp_path: Path) -> None:
    """A host killed while it states the loss of a machine is followed by one that states it."""
    outcome = run_disturbed(tmp_path / "ledger", [("sandbox.result_appended", 9), ("sandbox.decided", 1)])
    assert outcome.kills == 2, "no machine was lost"
    assert outcome.table == undisturbed().table


@pytest.mark.parametrize("seed", range(12))
def test_swarm(seed: int, tmp_path: Path) -> None:
    """Lost acknowledgements, lost live messages and double deliveries on two hosts change nothing."""
    faults = Faults(
        seed=seed, ack_lost=0.02 * (seed % 3), live_lost=0.1 * (seed % 2), delivered_twice=0.1 * (seed % 4 > 1)
    )
    at = NAMES[seed * 5 % len(NAMES)]
    outcome = run_disturbed(tmp_path / "ledger", [(at, 3)], hosts=2, faults=faults)
    assert outcome.table == undisturbed().table
