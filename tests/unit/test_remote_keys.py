"""The API key of a maker of machines: taken out of the configuration, kept as a secret, masked wherever it might be written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.services import Services
from gym_bus.cli.eval_run import other_keys, resolve, with_keys
from gym_bus.config_sandboxes import replace_keys, wanted, with_key_names_of
from gym_bus.errors import BadConfig
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from gym_bus.settings import Settings
from providers.sandboxes.remote import RemoteProvider
from schemas.config import RunConfig
from schemas.sandboxes import Apptainer, Docker, RemoteSandbox

VARIABLES = {"e2b": "E2B_API_KEY", "opensandbox": "OPEN_SANDBOX_API_KEY", "daytona": "DAYTONA_API_KEY"}
NEEDED = {"opensandbox": {"image": "any:1"}}


@pytest.mark.parametrize("kind", sorted(VARIABLES))
@pytest.mark.parametrize(
    ("written", "environ", "key"),
    [
        ("plain-key", {}, "plain-key"),
        ("env:MY_KEY", {"MY_KEY": "key-by-name"}, "key-by-name"),
        (None, {"default": "key-of-variable"}, "key-of-variable"),
        (None, {}, None),
    ],
)
def test_the_key_is_written_down_nowhere(
    tmp_path: Path, kind: str, written: str | None, environ: dict[str, str], key: str | None
) -> None:
    """The configuration holds a name; the secret's file holds the value; the log masks it."""
    (tmp_path / "tasks").write_text("{}")
    overrides = [f"sandbox.type={kind}", *([f"sandbox.api_key={written}"] if written else [])]
    overrides += [f"sandbox.{name}={value}" for name, value in NEEDED.get(kind, {}).items()]
    options: dict[str, Any] = {"input_path": str(tmp_path / "tasks"), "overrides": overrides}
    variables = {VARIABLES[kind] if name == "default" else name: value for name, value in environ.items()}
    settings = Settings(data_dir=tmp_path)
    config, _ = resolve(options, variables)
    assert config.sandbox.model_dump(exclude_defaults=True) == {"type": kind, **NEEDED.get(kind, {})}
    assert other_keys(options, variables).get("sandbox") == key
    config = with_keys(config, None, settings, other_keys(options, variables))
    assert isinstance(config.sandbox, RemoteSandbox)
    if key is None:
        assert config.sandbox.api_key is None
        return
    assert config.sandbox.api_key
    assert key not in config.model_dump_json()
    assert SecretsStore(tmp_path / "secrets").read(config.sandbox.api_key) == key
    redactor = Redactor()
    services = Services(settings, "h1", SecretsStore(tmp_path / "secrets"), redactor)
    assert isinstance(services.provider_for(config.sandbox), RemoteProvider)
    assert key.encode() not in redactor.clean(f'"{key}"'.encode())


def test_a_variable_that_is_not_there_is_named(tmp_path: Path) -> None:
    options = {"input_path": "tasks", "overrides": ["sandbox.type=e2b", "sandbox.api_key=env:NOT_THERE"]}
    with pytest.raises(BadConfig, match=r"sandbox\.api_key: the environment has no NOT_THERE"):
        resolve(options, {})


def config_of(tmp_path: Path, *overrides: str, **options: Any) -> tuple[RunConfig, Settings]:
    """Return a run's configuration as it is logged, its keys stored."""
    settings = Settings(data_dir=tmp_path)
    given = {"input_path": str(tmp_path / "tasks"), "overrides": list(overrides), **options}
    config, _ = resolve(given, {"E2B_API_KEY": "default"})
    return with_keys(config, None, settings, other_keys(given, {"E2B_API_KEY": "default"})), settings


def keys_in(config: RunConfig, settings: Settings) -> dict[str, str]:
    """Return the keys by the places whose names of keys lead to them."""
    store = SecretsStore(settings.data_dir / "secrets")
    return {place: store.read(s.api_key) for place, s in wanted(config) if isinstance(s, RemoteSandbox) and s.api_key}


def test_every_place_that_names_a_sandbox_has_a_key_of_its_own(tmp_path: Path) -> None:
    """Machines for grading, and those that follow lost ones, are asked for with the keys that their makers gave."""
    config, settings = config_of(
        tmp_path,
        "sandbox.type=bubblewrap",
        "grading_sandbox={type: daytona, api_key: for-grading}",
        "checkpoints.restore_in={type: e2b}",
    )
    assert keys_in(config, settings) == {"grading_sandbox": "for-grading", "checkpoints.restore_in": "default"}
    assert "for-grading" not in config.model_dump_json()


def test_a_resumed_run_gets_another_key_under_the_name_that_the_log_holds(tmp_path: Path) -> None:
    config, settings = config_of(tmp_path, "sandbox.type=e2b", sandbox_api_key="wrong")
    assert keys_in(config, settings) == {"sandbox": "wrong"}
    replace_keys(config, "right", SecretsStore(tmp_path / "secrets"))
    assert keys_in(config, settings) == {"sandbox": "right"}
    other, _ = config_of(tmp_path, "sandbox.type=e2b", sandbox_api_key="third")
    assert other != config
    assert with_key_names_of(other, config) == config


@pytest.mark.parametrize(
    ("overrides", "what"),
    [
        (["sandbox.type=opensandbox", "sandbox.image=any:1"], "was started without a key"),
        (["sandbox={type: e2b, api_key: a}", "grading_sandbox={type: daytona, api_key: b}"], "several makers"),
    ],
)
def test_a_key_that_has_no_place_is_refused(tmp_path: Path, overrides: list[str], what: str) -> None:
    config, _ = config_of(tmp_path, *overrides)
    with pytest.raises(BadConfig, match=what):
        replace_keys(config, "new", SecretsStore(tmp_path / "secrets"))


def test_a_key_for_sandboxes_wants_a_remote_one(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="--sandbox-api-key needs a remote sandbox"):
        config_of(tmp_path, "sandbox.type=bubblewrap", sandbox_api_key="key")


def test_files_and_sockets_of_every_sandbox_are_made_absolute(tmp_path: Path) -> None:
    """Hosts have another working directory, whichever place names the sandbox."""
    config, _ = config_of(
        tmp_path,
        "sandbox.type=bubblewrap",
        "grading_sandbox={type: apptainer, image: some.sif}",
        "checkpoints.restore_in={type: docker, image: any, socket: 'unix:///run/some.sock'}",
    )
    assert config.grading_sandbox == Apptainer(image=str(Path.cwd() / "some.sif"))
    assert config.checkpoints.restore_in == Docker(image="any", socket="/run/some.sock")
