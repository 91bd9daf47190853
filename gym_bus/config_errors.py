"""Says in a user's words what pydantic found wrong with a configuration.

Each line names the dotted key, where it was written, and what was perhaps meant.
"""

from __future__ import annotations

import ast
import difflib
import re
import typing
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from gym_bus.config_text import Path_, Sourced
from gym_bus.plain_words import plainly
from schemas.addresses import NotAlone
from schemas.config import RunConfig

SHOWN_MAX: Final = 10
OTHER_NAMES: Final = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "max_new_tokens": "max_output_tokens",
    "stop_sequences": "stop",
}
"""What other APIs call what we have under one name."""


def explain(error: ValidationError, sourced: Sourced) -> list[str]:
    """Return one line for each mistake, at most `SHOWN_MAX`; what is missing comes last, for it may be there and misspelt."""
    lines: list[str] = []
    for found in sorted(error.errors(include_url=False), key=lambda one: bool(one["type"] == "missing")):
        path = _path(found["loc"], sourced.values)
        key = ".".join(str(part) for part in path) or "the configuration"
        where = sourced.place(path)
        is_told = not (_may_be_secret(found) and str(where).startswith("override"))  # which says all of it
        is_written = where is not None and _is_written(sourced.values, path) and is_told
        line = (
            f"{where}: {key}: {_said(found, path, sourced.values)}{_quoted(found, key, str(where))}"
            if is_written
            else f"{key}: {_said(found, path, sourced.values)}"
        )
        if line not in lines:
            lines.append(line)
    if len(lines) > SHOWN_MAX:
        lines = [*lines[:SHOWN_MAX], f"and {len(lines) - SHOWN_MAX} more"]
    return lines


def _quoted(found: Any, key: str, where: str) -> str:
    """Return how a text is written that was taken for something else, a number say."""
    if found["type"] != "string_type" or not isinstance(found["input"], int | float | date):
        return ""
    override: str = ast.literal_eval(where.removeprefix("override ")) if where.startswith("override ") else ""
    given, _, value = override.partition("=")
    return f""": quote it, '{given}="{value.strip()}"'""" if given.lstrip("+") == key else ": quote it"


def _may_be_secret(found: Any) -> bool:
    return isinstance(found.get("ctx", {}).get("error"), NotAlone)


def _path(location: tuple[int | str, ...], values: Any) -> Path_:
    """Return pydantic's location without the tags of unions, which are no keys, and without its word for a key itself."""
    path: list[str | int] = []
    for part in location:
        is_tag = isinstance(values, dict) and part not in values and values.get("type") == part
        is_kind = isinstance(part, str) and isinstance(values, str | int | float | list)
        if is_tag or is_kind or part == "[key]":
            continue
        values = _step(values, part)
        path.append(part)
    return tuple(path)


def _is_written(values: Any, path: Path_) -> bool:
    for part in path[:-1]:
        values = _step(values, part)
    if isinstance(values, list):
        return isinstance(path[-1], int) and path[-1] < len(values)
    return isinstance(values, dict) and bool(path) and path[-1] in values


def _said(found: Any, path: Path_, values: dict[str, Any]) -> str:  # noqa: PLR0911  a return for each kind of mistake
    match found["type"]:
        case "extra_forbidden":
            return f"unknown key{_guess(path, values)}"
        case "missing":
            return "has to be set" + (
                ": a FOLDER of tasks, --reasoning-gym NAME, --input FILE.jsonl, or --config FILE"
                if path == ("taskset",)
                else ""
            )
        case "union_tag_invalid":
            tag = str(found["ctx"]["tag"])
            return f"no such type {tag!r}; {types_meant(tag, types_of(str(path[-1]) if path else ''))}"
        case "value_error" if isinstance(found["input"], dict) or _may_be_secret(found):  # about a part as a whole
            return plainly(found["msg"])
        case "literal_error" if found["loc"][-1] == "[key]":
            known = re.findall(r"'([^']*)'", found["ctx"]["expected"])
            return f"unknown key{_nearest(str(path[-1]), known) or '; known here are ' + ', '.join(known)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"want keys and values, found {_shown(found['input'])}"
        case _:
            message = plainly(found["msg"]).removeprefix("Input ")
            return f"{message[:1].lower()}{message[1:]}, found {_shown(found['input'])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004  a line's worth


def _guess(path: Path_, values: dict[str, Any]) -> str:
    """Return what was perhaps meant: a key of the same place, or the same key elsewhere."""
    last = str(path[-1])
    if others := _other_types(path, values):
        have = "has" if len(others) == 1 else "have"
        return f": type {_step(values, path[0])['type']} has none of this name, type {' and '.join(others)} {have}"
    siblings = _fields(path[:-1], values)
    if near := _nearest(last, siblings):
        return near
    elsewhere = [dotted for dotted in _all_keys(RunConfig, ()) if dotted.rpartition(".")[2] == last]
    if elsewhere:
        return f"; did you mean {' or '.join(dict.fromkeys(elsewhere))}?"
    return f"; known here are {', '.join(siblings)}" if siblings else ""


def _other_types(path: Path_, values: Any) -> list[str]:
    """Return the other types of the same part that have the key `part.key`."""
    field = RunConfig.model_fields.get(str(path[0])) if len(path) == 2 else None  # noqa: PLR2004  part and key
    kinds = [kind for kind in (models_in(field.annotation) if field else []) if "type" in kind.model_fields]
    part = _step(values, path[0])
    if not isinstance(part, dict) or "type" not in part:
        return []
    return [str(kind.model_fields["type"].default) for kind in kinds if path[1] in kind.model_fields]


def types_meant(name: str, types: list[str]) -> str:
    """Return which types were perhaps meant by `name`, which is none of them, or all that there are."""
    name = name.replace("-", "_")
    known = {short: type_ for type_ in types for short in (type_, type_.removesuffix("_agent"))}
    holding = [type_ for type_ in types if name and name in type_]
    near = (
        [known[name]]
        if name in known
        else holding or [known[short] for short in difflib.get_close_matches(name, known, n=1)]
    )
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(sorted(types))}"


def _nearest(name: str, known: list[str]) -> str:
    if (own := OTHER_NAMES.get(name)) in known:
        return f"; did you mean {own}?"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that an annotation is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def _fields(path: Path_, values: Any) -> list[str]:
    """Return the keys that may stand under `path`."""
    model: type[BaseModel] = RunConfig
    for part in path:
        values = _step(values, part)
        if isinstance(part, int):
            continue
        field = model.model_fields.get(part)
        models = models_in(field.annotation) if field else []
        if not models:
            return []
        wanted = values.get("type") if isinstance(values, dict) else None
        model = next(
            (m for m in models if "type" in m.model_fields and m.model_fields["type"].default == wanted), models[0]
        )
    return list(model.model_fields)


def _step(values: Any, part: str | int) -> Any:
    if isinstance(values, dict):
        return values.get(part)
    if isinstance(values, list) and isinstance(part, int) and part < len(values):
        return values[part]
    return None


def types_of(part: str) -> list[str]:
    """Return the types of a part of the configuration (`agent`, `model`, …) by name; none if it has no types."""
    field = RunConfig.model_fields.get(part)
    kinds = [kind for kind in (models_in(field.annotation) if field else []) if "type" in kind.model_fields]
    return sorted(str(kind.model_fields["type"].default) for kind in kinds)


def _all_keys(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield ".".join((*path, name))
        for inner in models_in(field.annotation):
            yield from _all_keys(inner, (*path, name))
