"""What a configuration says of sandboxes, wherever it names one: the agent's, that for grading, that for what follows a lost one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gym_bus.config_text import Sourced
from gym_bus.errors import BadConfig
from gym_bus.secrets_store import SecretsStore
from schemas.config import RunConfig
from schemas.sandboxes import RemoteSandbox, SandboxConfig

PLACES: Final = ("sandbox", "grading_sandbox", "checkpoints.restore_in")
KEY_VARIABLES: Final[Mapping[str, str]] = {
    "e2b": "E2B_API_KEY",
    "opensandbox": "OPEN_SANDBOX_API_KEY",
    "daytona": "DAYTONA_API_KEY",
}
"""The variables that the clients of these makers of machines read themselves."""
PATHS: Final = ("ledger_path", "socket", "dockerfile")
IMAGE_IS_A_FILE: Final = frozenset({"apptainer", "enroot"})


def written(sourced: Sourced) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place and the values of every sandbox that is written down, to be changed where they stand."""
    for place in PLACES:
        values: Any = sourced.values
        for key in place.split("."):
            values = values.get(key) if isinstance(values, dict) else None
        if isinstance(values, dict):
            yield place, values


def wanted(config: RunConfig) -> Iterator[tuple[str, SandboxConfig]]:
    """Yield the place and the configuration of every sandbox that a run may make."""
    for place in PLACES:
        found: Any = config
        for key in place.split("."):
            found = getattr(found, key) if found is not None else None
        if found is not None:
            yield place, found


def make_paths_absolute(values: dict[str, Any], base: Path) -> None:
    """Resolve the files that one sandbox names against `base`."""
    for key in PATHS:
        if isinstance(value := values.get(key), str):
            values[key] = _absolute(value, base)
    if values.get("type") in IMAGE_IS_A_FILE:  # elsewhere an image is a name
        for key in ("image", "binary"):
            if isinstance(value := values.get(key), str) and (key == "image" or "/" in value):
                values[key] = _absolute(value, base)


def take_keys(sourced: Sourced, environ: Mapping[str, str], given: str | None = None) -> dict[str, str]:
    """Return the API keys of remote sandboxes' makers by place, taken out of the values; raises `BadConfig`.

    First `given` (a flag), then `api_key` (the key itself, or `env:NAME`), then the maker's variable.
    """
    keys: dict[str, str] = {}
    for place, values in written(sourced):
        variable = KEY_VARIABLES.get(str(values.get("type")))
        if variable is None:
            continue
        said = values.pop("api_key", None)
        key = key_of(f"{place}.api_key", said if given is None else given, environ) or environ.get(variable)
        if key:
            keys[place] = key
    if given is not None and not keys:
        msg = f"--sandbox-api-key needs a remote sandbox: sandbox.type={'|'.join(KEY_VARIABLES)}"
        raise BadConfig(msg)
    return keys


def key_of(place: str, said: Any, environ: Mapping[str, str]) -> str | None:
    """Return a key that is written down, or the variable that `env:NAME` names; raises `BadConfig`."""
    if said is None:
        return None
    if not isinstance(said, str):
        msg = f"{place}: want text, or env:NAME, found {type(said).__name__}"
        raise BadConfig(msg)
    prefix, is_named, name = said.partition("env:")
    if prefix or not is_named:
        return said
    if not environ.get(name):
        msg = f"{place}: the environment has no {name}"
        raise BadConfig(msg)
    return environ[name]


def with_key_names(config: RunConfig, keys: Mapping[str, str], store: SecretsStore) -> RunConfig:
    """Return the configuration with the names under which `store` keeps the keys, by place."""
    for place, sandbox in wanted(config):
        if isinstance(sandbox, RemoteSandbox) and place in keys:
            config = _with(config, place.split("."), sandbox.replaced(api_key=store.store(keys[place])))
    return config


def with_key_names_of(config: RunConfig, logged: RunConfig) -> RunConfig:
    """Return the configuration with the names that `logged` has for keys: a key may change, and is no part of what is measured."""
    known = dict(wanted(logged))
    for place, sandbox in wanted(config):
        was = known.get(place)
        if isinstance(sandbox, RemoteSandbox) and isinstance(was, RemoteSandbox) and sandbox.type == was.type:
            config = _with(config, place.split("."), sandbox.replaced(api_key=was.api_key))
    return config


def replace_keys(config: RunConfig, given: str, store: SecretsStore) -> None:
    """Put a new key in the place of the old one of a run's remote sandboxes; raises `BadConfig` if it has none, or two makers."""
    remote = [sandbox for _, sandbox in wanted(config) if isinstance(sandbox, RemoteSandbox)]
    if len({sandbox.type for sandbox in remote}) > 1:
        msg = "--sandbox-api-key: this run has sandboxes of several makers, and one key cannot be that of all"
        raise BadConfig(msg)
    names = {sandbox.api_key for sandbox in remote if sandbox.api_key}
    if not names:
        msg = "--sandbox-api-key: this run was started without a key for sandboxes; start a new run: gym-bus eval run"
        raise BadConfig(msg)
    for name in names:
        store.replace(name, given)


def _with(part: Any, path: list[str], value: Any) -> Any:
    """Return a configuration's part with another value at `path`."""
    new = value if len(path) == 1 else _with(getattr(part, path[0]), path[1:], value)
    return part.model_copy(update={path[0]: new})


def _absolute(value: str, base: Path) -> str:
    return str((base / Path(value).expanduser()).resolve())
