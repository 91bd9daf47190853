"""The SQL invariants over the log of a world: what `gym-bus doctor` looks at, after a run in a test."""

from __future__ import annotations

import os
import zlib
from typing import Final

from projections import violations
from tests.support.logs import project
from tests.support.world import World

ONE_IN: Final = 5
"""Projecting a log and asking takes a quarter of a second, as long as the run itself: one test in five does it, chosen by its id."""


def is_sampled() -> bool:
    """Say whether the running test is one of those that look."""
    return zlib.crc32(os.environ.get("PYTEST_CURRENT_TEST", "").encode()) % ONE_IN == 0


def check_invariants(world: World) -> None:
    """Check every invariant on the whole log."""
    found = violations(project(list(world.server.events), world.blobs))
    assert found == {}, found
