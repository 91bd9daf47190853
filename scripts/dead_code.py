"""Prints functions, classes, methods and constants that nothing uses, and fails if there are any.

vulture finds them; what it cannot know is left out here: fields of frozen models are read as JSON by whoever reads the
log, and locals are ruff's matter. Names that only a library calls are listed under [tool.vulture] in pyproject.toml.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Return 1 if something is unused."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["vulture"]
    finder = Vulture(ignore_names=settings["ignore_names"], ignore_decorators=settings["ignore_decorators"])
    finder.scavenge([ROOT / path for path in settings["paths"]])
    unused = [
        item
        for item in finder.get_unused_code(min_confidence=settings["min_confidence"])
        if item.typ not in {"variable", "attribute"} or not is_indented(item.filename, item.first_lineno)
    ]
    for item in unused:
        path = item.filename.relative_to(ROOT)
        sys.stdout.write(f"{path}:{item.first_lineno}: {item.message}\n")
    sys.stdout.write(f"dead code: {len(unused)} found\n")
    return 1 if unused else 0


def is_indented(path: Path, line: int) -> bool:
    """Tell whether the line is inside a class or a function."""
    return path.read_text(encoding="utf-8").splitlines()[line - 1][:1].isspace()


if __name__ == "__main__":
    sys.exit(main())
