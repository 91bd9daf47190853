"""YAML to plain values, with the place of every key: what a configuration says, not yet what it means.

The values are those of `yaml.safe_load`; beyond it, a key given twice is an error, and so is a file that is too large
or nested too deeply.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from gym_bus.errors import BadConfig

TEXT_MAX_BYTES: Final = 4 * 1024 * 1024
DEPTH_MAX: Final = 64
VALUES_MAX: Final = 200_000
MERGE_TAG: Final = "tag:yaml.org,2002:merge"

Path_ = tuple[str | int, ...]


@dataclass
class Sourced:
    """Plain values, and for each path of keys where it was written (`file:line`, or the override itself)."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path_, str] = field(default_factory=dict)

    def place(self, path: Path_) -> str | None:
        """Return where `path` was written, or the nearest of what holds it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)


def read_file(path: Path) -> Sourced:
    """Return what a YAML file says; raises `BadConfig` that names the file, and the line where there is one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror or error}"
        raise BadConfig(msg) from error
    if len(content) > TEXT_MAX_BYTES:
        msg = f"{path}: a configuration of {len(content):,} bytes; at most {TEXT_MAX_BYTES:,} are read"
        raise BadConfig(msg)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        msg = f"{path}: not UTF-8 at byte {error.start}"
        raise BadConfig(msg) from error
    sourced = Sourced()
    value = parse(text, str(path), sourced.places)
    if value is None:
        return sourced
    if not isinstance(value, dict):
        msg = f"{path}: want keys and values at the top, found {type(value).__name__}"
        raise BadConfig(msg)
    sourced.values = value
    return sourced


def parse(text: str, source: str, places: dict[Path_, str] | None = None) -> Any:
    """Return the value of a YAML text; the places of its keys are added to `places`."""
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            return None if node is None else _Reader(loader, source, {} if places is None else places).read(node, (), 0)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        msg = f"{where}: not YAML: {error.problem or error.context}"
        raise BadConfig(msg) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        msg = f"{source}: not YAML: {error}"
        raise BadConfig(msg) from error


class _Reader:
    """Turns nodes into values and notes where they stand."""

    def __init__(self, loader: yaml.SafeLoader, source: str, places: dict[Path_, str]) -> None:
        self._loader = loader
        self._source = source
        self._places = places
        self._count = 0

    def read(self, node: yaml.Node, path: Path_, depth: int) -> Any:
        self._count += 1
        if depth > DEPTH_MAX or self._count > VALUES_MAX:
            msg = f"{self._at(node)}: nested too deeply, or too many values (aliases repeated in aliases?)"
            raise BadConfig(msg)
        self._places.setdefault(path, self._at(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        return self._loader.construct_object(node, deep=True)

    def _mapping(self, node: yaml.MappingNode, path: Path_, depth: int) -> dict[str, Any]:
        seen: dict[str, str] = {}
        for key_node, _ in node.value:
            if key_node.tag == MERGE_TAG:
                continue
            key = self._key(key_node)
            if key in seen:
                msg = f"{self._at(key_node)}: key {key!r} was given at {seen[key]} already"
                raise BadConfig(msg)
            seen[key] = self._at(key_node)
        self._loader.flatten_mapping(node)
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            self._places[*path, key] = self._at(key_node)
            values[key] = self.read(value_node, (*path, key), depth + 1)
        return values

    def _key(self, node: yaml.Node) -> str:
        key = self._loader.construct_object(node, deep=True)
        if isinstance(key, bool | int | float):
            return str(key)
        if not isinstance(key, str):
            msg = f"{self._at(node)}: a key must be text, found {type(key).__name__}"
            raise BadConfig(msg)
        return key

    def _at(self, node: yaml.Node) -> str:
        return f"{self._source}:{node.start_mark.line + 1}"
