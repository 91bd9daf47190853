"""What a run adds to a program's own configuration: merged into ours, but for what says where its model is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adapters.harnesses.base import Unsupported

Json = dict[str, Any]
Path = tuple[str, ...]
"""The keys that lead to a place of a configuration; `*` is any key, and any place in a list."""


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any], kept: Iterable[Path]) -> Json:
    """Return `ours` with all of `theirs`, which wins; raises `Unsupported` for what it says at one of the paths `kept`.

    Objects are merged, lists of objects with an `id` by that; anything else takes the place of what was there. What is below a path is
    kept as well.
    """
    for path in kept:
        if is_said(theirs, path):
            msg = (
                f"its configuration cannot say {'.'.join(path)!r}: where the model is, which tools its task offers, and what the run"
                " says of words and tools, is the run's"
            )
            raise Unsupported(msg)
    return _merged(dict(ours), theirs)


def is_said(config: Any, path: Path) -> bool:
    """Say whether a configuration says something at a path, or instead of what it leads through."""
    if not path:
        return True
    if path[0] == "*" and isinstance(config, Mapping | list):
        return any(is_said(one, path[1:]) for one in (config.values() if isinstance(config, Mapping) else config))
    if not isinstance(config, Mapping):
        return True
    return path[0] in config and is_said(config[path[0]], path[1:])


def leaves(config: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield what a configuration says, with the keys that lead there."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def _merged(ours: Json, theirs: Mapping[str, Any]) -> Json:
    return {**ours, **{key: _one(ours.get(key), value) for key, value in theirs.items()}}


def _one(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, dict) and isinstance(theirs, Mapping):
        return _merged(ours, theirs)
    if _have_ids(ours) and _have_ids(theirs):
        by_id = {one["id"]: one for one in ours}
        return list({**by_id, **{one["id"]: _one(by_id.get(one["id"]), one) for one in theirs}}.values())
    return theirs


def _have_ids(values: Any) -> bool:
    return (
        isinstance(values, list)
        and bool(values)
        and all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in values)
    )
