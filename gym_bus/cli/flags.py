"""What stands on the command line of a run beside `key=value`: flags and a folder, in the configuration's own shape.

A flag and an override that say two things of one key are a mistake, whichever was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gym_bus import config as configs
from gym_bus.config_errors import types_meant, types_of
from gym_bus.config_text import Path_
from gym_bus.errors import BadConfig

FLAGS: Final[Mapping[str, str]] = {
    "agent": "agent.type",
    "model": "model.policy_model_name",
    "model_url": "model.policy_base_url",
    "model_type": "model.type",
    "num_repeats": "num_repeats",
    "concurrency": "num_samples_in_parallel",
    "limit": "limit",
    "temperature": "responses_create_params.temperature",
    "top_p": "responses_create_params.top_p",
    "max_output_tokens": "responses_create_params.max_output_tokens",
    "reasoning_gym": "taskset.datasets",
    "input_path": "taskset.jsonl_fpath",
    "folder": "taskset.path",
    "unsafe_local": "sandbox.type",
    "model_api_key": "model.policy_api_key",
}
"""The key that each flag is short for."""
NAMES: Final[Mapping[str, str]] = {"input_path": "--input", "folder": "the folder"}
TASKS: Final = frozenset({"reasoning_gym", "input_path", "folder"})
SECRET: Final = frozenset({"model_api_key"})


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the flags say, in the configuration's own shape; raises `BadConfig` where they or an override contradict them."""
    flags: dict[str, Any] = {}
    if options.get("reasoning_gym"):
        flags["taskset"] = {"type": "reasoning_gym", "datasets": [{"name": name} for name in options["reasoning_gym"]]}
    if options.get("input_path"):
        if "taskset" in flags:
            msg = "--input and --reasoning-gym both name the tasks: give one of them"
            raise BadConfig(msg)
        flags["taskset"] = {"type": "jsonl", "jsonl_fpath": options["input_path"]}
    if options.get("folder"):
        if "taskset" in flags:
            msg = f"the folder {options['folder']} names the tasks, and so does a flag: give one of them"
            raise BadConfig(msg)
        flags["taskset"] = {"type": "harbor", "path": options["folder"]}
    if options.get("agent"):
        flags["agent"] = {"type": agent_named(options["agent"])}
    if options.get("unsafe_local"):
        flags["sandbox"] = {"type": "unsafe_local"}
    type_ = _model_type(options)
    named = {"policy_base_url": _model_url(options.get("model_url")), "policy_model_name": options.get("model")}
    if (model := {key: value for key, value in named.items() if value is not None}) or options.get("model_type"):
        flags["model"] = {"type": type_ or "openai", **model}
    plain = {
        "num_repeats": "num_repeats",
        "concurrency": "num_samples_in_parallel",
        "limit": "limit",
    }
    flags.update({key: options[flag] for flag, key in plain.items() if options.get(flag) is not None})
    sampled = {name: options.get(name) for name in ("temperature", "top_p", "max_output_tokens")}
    if sampling := {key: value for key, value in sampled.items() if value is not None}:
        flags["responses_create_params"] = sampling
    _check_agree(flags, options)
    return flags


def _check_agree(flags: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise `BadConfig` that names both if an override says something else than a flag that was given."""
    overrides = options.get("overrides") or ()
    said = configs.parse_overrides(overrides).values
    for flag, value in _given(options):
        for key in (*(("taskset.type",) if flag in TASKS else ()), FLAGS[flag]):
            path = tuple(key.split("."))
            wanted = value if flag in SECRET else _at(flags, path)
            if _contradicts(said, path, wanted):
                other = f"{key}=…" if flag in SECRET else _override_of(overrides, path)
                msg = f"{_named(flag, value)} and {other} say two things: give one of them"
                raise BadConfig(msg)


def _given(options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the flags that were given, with their values."""
    for flag in FLAGS:
        value = options.get(flag)
        if value is not None and value is not False and value != ():
            yield flag, value


def _at(values: Any, path: Path_) -> Any:
    for key in path:
        values = values.get(key) if isinstance(values, Mapping) else None
    return values


def _contradicts(values: Any, path: Path_, wanted: Any) -> bool:
    """Say whether overrides give the key at `path`, or what it is in, another value than `wanted`."""
    for key in path:
        if not isinstance(values, dict):
            return True
        if key not in values:
            return False
        values = values[key]
    return bool(values != wanted)


def _override_of(overrides: Sequence[str], path: Path_) -> str:
    """Return the last override of the key at `path`, of what it is in or of what is in it, as it was written."""
    found = ".".join(map(str, path))
    for text in overrides:
        if match := configs.OVERRIDE.fullmatch(text):
            key = tuple(match[1].split("."))
            if all(one == other for one, other in zip(key, path, strict=False)):
                found = text
    return found


def _named(flag: str, value: Any) -> str:
    """Return a flag as it stands on the command line."""
    name = NAMES.get(flag, f"--{flag.replace('_', '-')}")
    if value is True or flag in SECRET:
        return name
    return f"{name} {f' {name} '.join(map(str, value)) if isinstance(value, list | tuple) else value}"


def with_folder(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the folder of tasks, which stands among the overrides, by itself; raises `BadConfig` for two of them."""
    words = list(options.get("overrides") or ())
    folders = [word for word in words if not configs.OVERRIDE.fullmatch(word) and Path(word).expanduser().is_dir()]
    if strange := next((word for word in words if "=" not in word and word not in folders), None):
        msg = f"{strange!r} is no override (key=value, such as num_repeats=1), and there is no folder of that name"
        raise BadConfig(msg)
    if len(folders) > 1:
        msg = f"{folders[0]} and {folders[1]} are both folders of tasks: give one, or the folder that both are in"
        raise BadConfig(msg)
    rest = tuple(word for word in words if word not in folders)
    return {**options, "folder": folders[0] if folders else None, "overrides": rest}


def agent_types() -> list[str]:
    """Return the types of agents that there are, by name."""
    return types_of("agent")


def agent_named(name: str) -> str:
    """Return the type of the agent that is called `name`, with or without `_agent`; raises `BadConfig` with what was perhaps meant."""
    types = agent_types()
    found = [type_ for type_ in types if name in {type_, type_.removesuffix("_agent")}]
    if not found:
        msg = f"--agent: no agent is called {name!r}; {types_meant(name, types)}"
        raise BadConfig(msg)
    return found[0]


def _model_type(options: Mapping[str, Any]) -> str | None:
    """Return what kind of server was asked for, by a flag or by an override."""
    flag: str | None = options.get("model_type")
    model = configs.parse_overrides(options.get("overrides") or ()).values.get("model")
    written = model.get("type") if isinstance(model, dict) else None
    return flag or (written if isinstance(written, str) else None)


def _model_url(given: str | Sequence[str] | None) -> str | list[str] | None:
    """Return the address that was given, or the list of them if `--model-url` was given several times."""
    urls = [given] if isinstance(given, str) else list(given or ())
    for url in urls:
        if re.search(r",\s*https?://", url):
            msg = f"--model-url: {url!r} is more than one address: give the option once for each of them"
            raise BadConfig(msg)
    return urls if len(urls) > 1 else urls[0] if urls else None
