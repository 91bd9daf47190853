"""Where a task's agent works: what the task says, else what its Dockerfile says, else a usual place."""

from __future__ import annotations

import posixpath
import re
from typing import Final

from gym_bus.errors import BadTaskset

USUAL: Final = "/app"
INSTRUCTION: Final = re.compile(r"^\s*(FROM|WORKDIR)\s+(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
STAGE: Final = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)


def workdir_of(dockerfile: str) -> str | None:
    """Return the directory that a Dockerfile's last stage ends in, None if it does not say.

    Raises `BadTaskset` for one that holds a variable.
    """
    here: str | None = None
    stages: dict[str, str | None] = {}
    name: str | None = None
    for word, rest in INSTRUCTION.findall(dockerfile):
        if word.upper() == "FROM":
            _remember(stages, name, here)
            found = STAGE.fullmatch(rest)
            base, name = (found[1], found[2]) if found else (rest, None)
            here = stages.get(base.lower())
            continue
        place = rest.strip("\"'")
        if "$" in place:
            raise BadTaskset(f'WORKDIR {place} holds a variable: say workdir = "/…" in [environment]')
        here = posixpath.normpath(posixpath.join(here or "/", place))
    return here


def _remember(stages: dict[str, str | None], name: str | None, here: str | None) -> None:
    if name is not None:
        stages[name.lower()] = here
