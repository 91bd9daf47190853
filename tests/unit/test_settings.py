"""Settings come from `GYM_BUS_*`, are checked, and say which one is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from gym_bus.errors import BadConfig
from gym_bus.settings import NOT_SETTINGS, PREFIX, Settings, load_settings


def test_without_variables_the_defaults_hold() -> None:
    """Other variables are none of ours; the data directory becomes absolute."""
    settings = load_settings({"PATH": "/bin", "HOME": "/root", "GYM_BUSY": "1"})
    assert settings == Settings(data_dir=Path(".gym-bus").absolute())


def test_variables_are_read() -> None:
    """As numbers, paths and texts, whatever the field is."""
    settings = load_settings(
        {
            "GYM_BUS_DATA_DIR": "/data",
            "GYM_BUS_ACK_WAIT_S": "2.5",
            "GYM_BUS_LEASE_S": "2",
            "GYM_BUS_RUN_SLOTS": "3",
            "GYM_BUS_BUS_URL": "nats://x:1",
        }
    )
    assert (settings.data_dir, settings.ack_wait_s, settings.run_slots) == (Path("/data"), 2.5, 3)
    assert settings.bus_url == "nats://x:1"


def test_an_override_beats_a_variable_and_none_beats_nothing() -> None:
    """What the command line was not told it does not say."""
    environ = {"GYM_BUS_RUN_SLOTS": "3", "GYM_BUS_HOSTS": "2"}
    settings = load_settings(environ, run_slots=5, hosts=None)
    assert (settings.run_slots, settings.hosts) == (5, 2)


@pytest.mark.parametrize("name", sorted(NOT_SETTINGS))
def test_the_fault_switches_are_no_settings(name: str) -> None:
    """They may stand in the environment of any process."""
    assert load_settings({name: "harness.appended:kill:1"}) == load_settings({})


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    """A typing error is not silently ignored."""
    with pytest.raises(BadConfig, match=r"unknown setting GYM_BUS_LEASE: known are .*GYM_BUS_LEASE_S"):
        load_settings({"GYM_BUS_LEASE": "3"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACK_WAIT_S", "soon"),
        ("ACK_WAIT_S", "0"),
        ("ACK_WAIT_S", "nan"),
        ("ACK_WAIT_S", "inf"),
        ("LEASE_S", "-1"),
        ("HOSTS", "65"),
        ("HOSTS", "1.5"),
        ("SNAPSHOT_EVERY", "7"),
        ("STORE_MAX_BYTES", "1000"),
        ("RUN_SLOTS", "0"),
        ("RUN_SLOTS", ""),
        ("BUS_URL", "nats://u:p@h:4222"),
        ("BUS_URL", "nats://a:4222,nats://token@h:4222"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: str) -> None:
    """The variable is named as it was written."""
    with pytest.raises(BadConfig, match=f"setting {PREFIX}{name}: "):
        load_settings({PREFIX + name: value})


def test_three_heartbeats_a_lease() -> None:
    """Two may be lost before a lease is over."""
    assert Settings(lease_s=6).heartbeat_s == pytest.approx(2)


def test_a_lease_longer_than_the_redelivery_is_refused() -> None:
    """A request that comes again must find its dead owner's lease over."""
    with pytest.raises(BadConfig):
        load_settings({"GYM_BUS_LEASE_S": "30", "GYM_BUS_ACK_WAIT_S": "10"})
