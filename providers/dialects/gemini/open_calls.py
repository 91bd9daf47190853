"""Calls that have no result yet. A result finds its call by its id, or else by the name of its function, the first call first."""

from __future__ import annotations

from collections import OrderedDict


class OpenCalls:
    """See the module. However many there are, each is found at once; no two have one id."""

    def __init__(self) -> None:
        """Begin with none."""
        self._names: dict[str, str] = {}
        self._ids: dict[str, OrderedDict[str, None]] = {}

    def __contains__(self, call_id: str) -> bool:
        """Tell whether a call of this id is open."""
        return call_id in self._names

    def add(self, call_id: str, name: str) -> None:
        """Take in a call of an id that no open call has."""
        self._names[call_id] = name
        self._ids.setdefault(name, OrderedDict())[call_id] = None

    def close(self, call_id: str | None, name: str) -> str | None:
        """Return the id of the call that a result belongs to, which is then open no more; None if there is no such call."""
        if call_id is None or call_id not in self._names:
            ids = self._ids.get(name)
            call_id = next(iter(ids)) if ids else None
        if call_id is not None:
            del self._ids[self._names.pop(call_id)][call_id]
        return call_id
