"""Importing a library without what most of it never uses.

`reasoning_gym` imports a cellular-automaton package, and with it all of matplotlib, for one of its generators: a third of its import.
Named modules are imported when one of their attributes is first used, by the standard library's own `LazyLoader`.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec
from types import ModuleType


class _LazyFinder(MetaPathFinder):
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._looking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec with a lazy loader, for the named modules only."""
        del path, target
        if fullname not in self._names or self._looking:
            return None
        self._looking = True
        try:
            spec = find_spec(fullname)
        finally:
            self._looking = False
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def lazily(*names: str) -> Generator[None]:
    """Import the modules `names` lazily inside the context."""
    finder = _LazyFinder(frozenset(names))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
