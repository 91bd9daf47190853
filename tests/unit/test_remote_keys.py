"""The API key of a maker of machines: taken out of the configuration, kept as a secret, masked wherever it might be written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.services import Services
from gym_bus.cli.eval_run import resolve, sandbox_key, with_key
from gym_bus.errors import BadConfig
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from gym_bus.settings import Settings
from providers.sandboxes.remote import RemoteProvider
from schemas.sandboxes import RemoteSandbox

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
    assert sandbox_key(options, variables) == key
    config = with_key(config, None, settings, sandbox_key(options, variables))
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
