"""The container engines of the tests: `scripts/setup docker` (or `podman`, for the slow ones) starts one and makes the image.

Without one, tests fail, unless NO_CONTAINER_TESTS=1 says that none can be had.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

IMAGE: Final = "gymbus/busybox:1"
USER: Final = "1000:1000" if os.getuid() == 0 else f"{os.getuid()}:{os.getgid()}"
PODMAN_IMAGE: Final = "localhost/gymbus/busybox:1"
PODMAN_SOCKET: Final = "/run/gym-bus-podman/podman.sock"
PYTHON_IMAGE: Final = "gymbus/python:1"
needs_engine = pytest.mark.skipif(
    os.environ.get("NO_CONTAINER_TESTS") == "1", reason="NO_CONTAINER_TESTS=1: no container engine here"
)


def python_image() -> str:
    """Return an image with Python, which is made at first use: a minute or two."""
    script = Path(__file__).resolve().parents[2] / "scripts/python_image"
    subprocess.run(["sh", str(script)], check=True, timeout=900)
    return PYTHON_IMAGE
