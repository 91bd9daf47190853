"""From files, overrides and flags to a run's configuration.

Two steps, kept apart: `gather` reads and merges plain values, `validate` says what they mean. Later sources win;
mappings are merged key by key, lists are replaced; a mapping whose `type` changes is replaced too, because its keys
belong to another thing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gym_bus import config_sandboxes
from gym_bus.config_errors import explain, models_in
from gym_bus.config_sandboxes import key_of
from gym_bus.config_text import Path_, Sourced, parse, read_file
from gym_bus.errors import BadConfig
from schemas.config import RunConfig

OVERRIDE: Final = re.compile(r"\+{0,2}([A-Za-z_][\w-]*(?:\.[\w-]+)*)=(.*)", re.DOTALL)
KEY_VARIABLES: Final[Mapping[str, str]] = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "vllm": "VLLM_API_KEY",
    "litellm": "LITELLM_API_KEY",
    "switchyard": "SWITCHYARD_API_KEY",
}


def gather(files: Sequence[Path], overrides: Sequence[str], flags: Mapping[str, Any] | None = None) -> Sourced:
    """Return the merged values of files, then of `key=value` overrides, then of flags; raises `BadConfig`."""
    merged = Sourced()
    for path in files:
        merge(merged, read_file(path))
    if flags:  # before the overrides, too: what they say of a part holds for the type of it that a flag chose
        merge(merged, Sourced(dict(flags), {(): "command line"}))
    merge(merged, parse_overrides(overrides))
    if flags:
        merge(merged, Sourced(dict(flags), {(): "command line"}))
    return merged


def parse_overrides(overrides: Sequence[str]) -> Sourced:
    """Return `a.b=1` forms as nested values; `+a.b=1` and `++a.b=1` mean the same. Values are YAML."""
    sourced = Sourced()
    seen: dict[Path_, str] = {}
    for text in overrides:
        found = OVERRIDE.fullmatch(text)
        if not found:
            msg = f"{text!r} is no override: want key=value, such as num_repeats=1 or model.error_rate=0.1"
            raise BadConfig(msg)
        path: Path_ = tuple(found[1].split("."))
        if path in seen:
            msg = f"override {text!r}: {found[1]} was given already, as {seen[path]!r}"
            raise BadConfig(msg)
        seen[path] = text
        value = parse(found[2], f"override {text!r}")
        for key in reversed(path):
            value = {key: value}
        merge(sourced, Sourced(value, {path[: i + 1]: f"override {text!r}" for i in range(len(path))}))
    return sourced


def merge(onto: Sourced, other: Sourced) -> None:
    """Lay `other` over `onto`: each value has the place of whoever said it last."""
    gone = set(_replaced(onto.values, other.values))
    kept = {path: place for path, place in onto.places.items() if not any(path[:n] in gone for n in range(len(path)))}
    said = {path: place for path in _paths(other.values) if (place := other.place(path))}
    onto.places = {**kept, **said, **other.places}
    onto.values = _merged(onto.values, other.values)


def _paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the path of a value, and of all that is in it."""
    yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        yield from _paths(item, (*path, key))


def _replaced(old: Any, new: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths at which nothing of `old` is left."""
    if _is_whole(old, new):
        yield path
        return
    for key in new.keys() & old.keys():
        yield from _replaced(old[key], new[key], (*path, key))


def _is_whole(old: Any, new: Any) -> bool:
    """Say whether `new` takes the place of `old` as a whole."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return True
    return "type" in new and "type" in old and bool(new["type"] != old["type"])


def _merged(old: Any, new: Any) -> Any:
    if _is_whole(old, new):
        return new
    return {**old, **{key: _merged(old[key], value) if key in old else value for key, value in new.items()}}


def validate(sourced: Sourced) -> RunConfig:
    """Return the configuration that the values mean; raises `BadConfig` with one line for each mistake."""
    values = {key: _with_type(key, value) for key, value in sourced.values.items()}
    try:
        json.dumps(values, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        msg = f"a text holds half of a surrogate pair ({error.object[max(0, error.start - 20) : error.start]!r} and then that)"
        raise BadConfig(msg) from error
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise BadConfig("\n".join(explain(error, Sourced(values, sourced.places)))) from error


def _with_type(key: str, value: Any) -> Any:
    """Return a part with its `type`: if it has none, that of the first kind that knows most of its keys."""
    field = RunConfig.model_fields.get(key)
    kinds = [kind for kind in (models_in(field.annotation) if field else []) if "type" in kind.model_fields]
    if not kinds or not isinstance(value, dict) or "type" in value:
        return value
    best = min(kinds, key=lambda kind: len(set(value) - set(kind.model_fields)))
    return {"type": best.model_fields["type"].default, **value}


def make_paths_absolute(sourced: Sourced, base: Path) -> None:
    """Resolve files that the configuration names against `base`: hosts have another working directory."""
    for section, key in (
        ("taskset", "jsonl_fpath"),
        ("taskset", "path"),
        ("model", "ledger_path"),
        ("model", "recording"),
        ("model", "endpoint_file"),
        ("model", "deployment"),
    ):
        values = sourced.values.get(section)
        if isinstance(values, dict) and isinstance(values.get(key), str):
            values[key] = str((base / Path(values[key]).expanduser()).resolve())
    for _, sandbox in config_sandboxes.written(sourced):
        config_sandboxes.make_paths_absolute(sandbox, base)


def key_of_model(
    sourced: Sourced, given: str | None, environ: Mapping[str, str], *, is_default_wanted: bool
) -> str | None:
    """Return the API key that the model is to be called with, taken out of the values; None if there is none.

    First `given` (a flag), then `model.policy_api_key` (the key itself, or `env:NAME`), then the variable that the
    model's type has for it (`KEY_VARIABLES`) if `is_default_wanted`.
    """
    model = sourced.values.get("model")
    written = model.pop("policy_api_key", None) if isinstance(model, dict) else None
    if given is not None:
        written = given
    if written is None and is_default_wanted:
        type_ = model.get("type") if isinstance(model, dict) else None
        return environ.get(KEY_VARIABLES.get(str(type_), "")) or None
    return key_of("model.policy_api_key", written, environ)


def config_digest(config: RunConfig) -> str:
    """Return 16 hex digits that are equal for equal configurations; what has its default value does not count."""
    canonical = json.dumps(config.model_dump(mode="json", exclude_defaults=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def difference(old: RunConfig, new: RunConfig) -> list[str]:
    """Return `key: old -> new` for every dotted key in which two configurations differ."""
    before, after = _flat(old.model_dump(mode="json")), _flat(new.model_dump(mode="json"))
    lines = []
    for path in sorted({*before, *after}, key=lambda p: [str(part) for part in p]):
        if (path in before) != (path in after) or before[path] != after[path]:
            was = json.dumps(before[path]) if path in before else "(not set)"
            now = json.dumps(after[path]) if path in after else "(not set)"
            lines.append(f"{'.'.join(map(str, path))}: {was} -> {now}")
    return lines


def _flat(value: Any, path: Path_ = ()) -> dict[Path_, Any]:
    if isinstance(value, dict) and value:
        return {k: v for key, item in value.items() for k, v in _flat(item, (*path, key)).items()}
    if isinstance(value, list) and value:
        return {k: v for i, item in enumerate(value) for k, v in _flat(item, (*path, i)).items()}
    return {path: value}
