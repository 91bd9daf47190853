"""The harnesses that there are, by the names that users know them by."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.base import Harness
from adapters.harnesses.codex import CODEX
from adapters.harnesses.mini_swe import MINI_SWE
from adapters.harnesses.pi import PI

HARNESSES: Final[dict[str, Harness]] = {harness.name: harness for harness in (CODEX, PI, MINI_SWE)}
