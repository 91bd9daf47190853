"""Says in a user's words what pydantic found wrong with a configuration: the dotted key, where it was written, what was meant."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from gym_bus.config_text import Path_, Sourced
from schemas.config import RunConfig

SHOWN_MAX: Final = 10


def explain(error: ValidationError, sourced: Sourced) -> list[str]:
    """Return one line for each mistake, at most `SHOWN_MAX`."""
    lines: list[str] = []
    for found in error.errors(include_url=False):
        path = _path(found["loc"], sourced.values)
        key = ".".join(str(part) for part in path) or "the configuration"
        where = sourced.place(path)
        is_written = where is not None and _has(sourced.values, path)
        line = f"{where}: {key}: {_said(found, path, sourced.values)}" if is_written else f"{key}: {_said(found, path, sourced.values)}"
        if line not in lines:
            lines.append(line)
    if len(lines) > SHOWN_MAX:
        lines = [*lines[:SHOWN_MAX], f"and {len(lines) - SHOWN_MAX} more"]
    return lines


def _path(location: tuple[int | str, ...], values: Any) -> Path_:
    """Return pydantic's location without the tags of unions, which are no keys."""
    path: list[str | int] = []
    for part in location:
        if isinstance(values, dict) and part in values:
            values = values[part]
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        elif isinstance(values, dict) and values.get("type") == part:
            continue
        else:
            values = None
        path.append(part)
    return tuple(path)


def _has(values: Any, path: Path_) -> bool:
    for part in path:
        if isinstance(values, dict) and part in values:
            values = values[part]
        elif isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            return False
    return True


def _said(found: Any, path: Path_, values: dict[str, Any]) -> str:
    match found["type"]:
        case "extra_forbidden":
            return f"unknown key{_guess(path, values)}"
        case "missing":
            return "has to be set" + (": --reasoning-gym NAME, --input FILE.jsonl, or --config FILE" if path == ("taskset",) else "")
        case "union_tag_not_found":
            return f"{path[-1]}.type has to say which kind: {_tags(path)}"
        case "union_tag_invalid":
            tag = str(found["ctx"]["tag"])
            return f"no such type {tag!r}; there are {found['ctx']['expected_tags']}{_nearest(tag, _tags(path).split(', '))}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"want keys and values, found {_shown(found['input'])}"
        case _:
            message = str(found["msg"]).removeprefix("Input ").removeprefix("Value error, ")
            return f"{message[:1].lower()}{message[1:]}, found {_shown(found['input'])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004  a line's worth


def _guess(path: Path_, values: dict[str, Any]) -> str:
    """Return what was perhaps meant: a key of the same place, or the same key elsewhere."""
    last = str(path[-1])
    siblings = _fields(path[:-1], values)
    if near := _nearest(last, siblings):
        return near
    elsewhere = [dotted for dotted in _all_keys(RunConfig, ()) if dotted.rpartition(".")[2] == last]
    if elsewhere:
        return f"; did you mean {' or '.join(elsewhere)}?"
    return f"; known here are {', '.join(siblings)}" if siblings else ""


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def _fields(path: Path_, values: Any) -> list[str]:
    """Return the keys that may stand under `path`."""
    model: type[BaseModel] = RunConfig
    for part in path:
        values = _step(values, part)
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        models = _models(field.annotation) if field else []
        if not models:
            return []
        wanted = values.get("type") if isinstance(values, dict) else None
        model = next((m for m in models if "type" in m.model_fields and m.model_fields["type"].default == wanted), models[0])
    return list(model.model_fields)


def _step(values: Any, part: str | int) -> Any:
    if isinstance(values, dict):
        return values.get(part)
    if isinstance(values, list) and isinstance(part, int) and part < len(values):
        return values[part]
    return None


def _tags(path: Path_) -> str:
    field = RunConfig.model_fields.get(str(path[-1])) if path else None
    tags = [str(m.model_fields["type"].default) for m in (_models(field.annotation) if field else []) if "type" in m.model_fields]
    return ", ".join(tags)


def _all_keys(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield ".".join((*path, name))
        for inner in _models(field.annotation):
            yield from _all_keys(inner, (*path, name))
