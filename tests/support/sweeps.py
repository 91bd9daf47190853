"""How finely the moments of a kill are swept: each boundary always, of its many hits every so many."""

from __future__ import annotations

import os
from typing import Final

COARSE: Final = 1 if os.environ.get("GYM_BUS_TEST_ALL_HITS") else 3
"""What the steps of a sweep are multiplied by; `GYM_BUS_TEST_ALL_HITS=1 make test` takes the small ones."""
