"""The control groups that boxes of a process have, in every hierarchy of this host."""

from __future__ import annotations

import os


def groups_of(pid: int) -> list[str]:
    """Return the directories of groups of a process's boxes, also of boxes that are going while they are looked for."""
    mark = f"/gym-bus-p{pid}-"
    return [place for place, _, _ in os.walk("/sys/fs/cgroup") if mark in place]
