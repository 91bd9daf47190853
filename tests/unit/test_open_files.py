"""How many files a process of ours may have open."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import resource
from actors.open_files import allow_many_files
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
allow_many_files()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard))
"""


def test_a_host_may_open_as_many_files_as_its_user_may() -> None:
    """However few a shell allows: each task of a set may bring a sandbox's configuration of its own."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "True\n"
