"""Where a task's agent works: what the task says, else what its Dockerfile says, else a usual place."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final

from gym_bus.errors import BadTaskset

USUAL: Final = "/app"
INSTRUCTION: Final = re.compile(r"(FROM|WORKDIR)\s+(.+)", re.IGNORECASE)
ESCAPE: Final = re.compile(r"\s*#\s*escape\s*=\s*`", re.IGNORECASE)
HOLDS_FILES: Final = re.compile(r"(ONBUILD\s+)?(RUN|COPY|ADD)\s", re.IGNORECASE)
FILE: Final = re.compile(r"""(?:^|\s)\d*<<(?P<tabs>-?)(?P<quote>["']?)(?P<name>[^\s<"']+)(?P=quote)(?=\s|$)""")
STAGE: Final = re.compile(r"(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)


def workdir_of(dockerfile: str) -> str | None:
    """Return the directory that a Dockerfile's last stage ends in, None if it does not say.

    Raises `BadTaskset` for one that holds a variable.
    """
    here: str | None = None
    stages: dict[str, str | None] = {}
    name: str | None = None
    for instruction in _instructions(dockerfile):
        said = INSTRUCTION.fullmatch(instruction)
        if said is None:
            continue
        word, rest = said[1], said[2]
        if word.upper() == "FROM":
            _remember(stages, name, here)
            found = STAGE.fullmatch(rest)
            base, name = (found[1], found[2]) if found else (rest, None)
            here = stages.get(base.lower())
            continue
        place = rest.strip("\"'")
        if "$" in place:
            raise BadTaskset(f'WORKDIR {place} holds a variable: say workdir = "/…" in [environment]')
        here = "/" + posixpath.normpath(posixpath.join(here or "/", place)).lstrip("/")
    return here


def _instructions(dockerfile: str) -> Iterator[str]:
    """Yield each instruction in one line: comments are left out, and the files that stand in some of them (`RUN <<EOF`)."""
    escape = "`" if ESCAPE.match(dockerfile) else "\\"
    lines = iter(dockerfile.split("\n"))
    begun = ""
    for line in lines:
        if line.lstrip().startswith("#"):
            continue
        text = line.rstrip()
        begun += text.removesuffix(escape)
        if text.endswith(escape):
            continue
        instruction, begun = begun.strip(), ""
        yield instruction
        if HOLDS_FILES.match(instruction):
            for file in FILE.finditer(instruction):
                _pass_over(lines, file["name"], has_tabs=bool(file["tabs"]))
    yield begun.strip()


def _pass_over(lines: Iterator[str], end: str, *, has_tabs: bool) -> None:
    """Go on behind the line that ends a file."""
    for line in lines:
        if (line.lstrip("\t") if has_tabs else line).rstrip("\r") == end:
            return


def _remember(stages: dict[str, str | None], name: str | None, here: str | None) -> None:
    if name is not None:
        stages[name.lower()] = here
