"""The container engine of the tests: `scripts/setup docker` starts it and makes the image. Without one, tests fail."""

from __future__ import annotations

import os
from typing import Final

import pytest

IMAGE: Final = "gymbus/busybox:1"
needs_engine = pytest.mark.skipif(
    os.environ.get("GYM_BUS_NO_DOCKER") == "1", reason="GYM_BUS_NO_DOCKER=1: no container engine here"
)
