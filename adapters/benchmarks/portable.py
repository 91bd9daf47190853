"""JSON that keeps Python's tuples and keys that are not text: what went in comes out equal, or it does not go in."""

from __future__ import annotations

from typing import Any, Final

_TUPLE: Final = "\x00tuple"
_PAIRS: Final = "\x00pairs"


def pack(value: object) -> Any:
    """Return `value` as JSON-safe data; raises TypeError for anything but text, numbers, lists, tuples and dicts."""
    kind: type[object] = type(value)  # exact: a numpy float is a float too, and would come back as another type
    if value is None or kind in {str, int, float, bool}:
        return value
    if isinstance(value, list):
        return [pack(entry) for entry in value]
    if isinstance(value, tuple) and kind is tuple:
        return {_TUPLE: [pack(entry) for entry in value]}
    if isinstance(value, dict) and kind is dict:
        if all(type(key) is str for key in value) and not {_TUPLE, _PAIRS} & set(value):
            return {key: pack(entry) for key, entry in value.items()}
        return {_PAIRS: [[pack(key), pack(entry)] for key, entry in value.items()]}
    raise TypeError(f"{kind.__name__} cannot be kept as JSON")


def unpack(value: Any) -> Any:
    """Return what `pack` was given."""
    if isinstance(value, list):
        return [unpack(entry) for entry in value]
    if isinstance(value, dict):
        if _TUPLE in value:
            return tuple(unpack(entry) for entry in value[_TUPLE])
        if _PAIRS in value:
            return {unpack(key): unpack(entry) for key, entry in value[_PAIRS]}
        return {key: unpack(entry) for key, entry in value.items()}
    return value
