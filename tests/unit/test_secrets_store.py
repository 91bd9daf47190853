"""Secrets lie in files that only this user can read, and names tell nothing about values."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gym_bus.errors import Permanent
from gym_bus.secrets_store import SecretsStore

VALUE = "sk-made-up-for-this-test"


def test_a_value_is_found_by_its_name(tmp_path: Path) -> None:
    """The same value has the same name; the name does not hold it."""
    store = SecretsStore(tmp_path / "secrets")
    name = store.store(VALUE)
    assert store.read(name) == VALUE
    assert store.store(VALUE) == name
    assert VALUE not in name
    assert store.all_values() == [VALUE]


def test_only_this_user_may_read(tmp_path: Path) -> None:
    """0600 in a 0700 directory, and nothing is left behind by writing."""
    directory = tmp_path / "secrets"
    name = SecretsStore(directory).store(VALUE)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert {path.name for path in directory.iterdir()} == {name, ".salt"}


def test_names_differ_between_directories(tmp_path: Path) -> None:
    """A name in a log cannot be tried against guessed values."""
    assert SecretsStore(tmp_path / "a").store(VALUE) != SecretsStore(tmp_path / "b").store(VALUE)


def test_a_key_can_be_replaced_under_its_name(tmp_path: Path) -> None:
    """The log holds the name, so a key that ran out is exchanged behind it."""
    store = SecretsStore(tmp_path / "secrets")
    name = store.store(VALUE)
    store.replace(name, "another-key")
    assert store.read(name) == "another-key"
    assert store.store(VALUE) == name
    assert store.read(name) == VALUE


@pytest.mark.parametrize("name", ["nope", "../bus/credentials.json", ".salt", ""])
def test_what_is_no_secret_is_not_read(tmp_path: Path, name: str) -> None:
    """A name from a log cannot reach another file."""
    store = SecretsStore(tmp_path / "secrets")
    store.store(VALUE)
    with pytest.raises(Permanent):
        store.read(name)


@pytest.mark.parametrize("value", ["", " x", "x\n", "a\nb"])
def test_what_cannot_be_a_key_is_refused(tmp_path: Path, value: str) -> None:
    """A file's content with its newline is a common slip."""
    with pytest.raises(Permanent):
        SecretsStore(tmp_path / "secrets").store(value)
