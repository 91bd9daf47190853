"""Who is taken to be alive, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gym_bus.runtime.presence import Presence, host_of, incarnation

LEASE_S = 5.0
ME, OTHER = "h0.b2", "h1.b1"


class FakeClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 100.0

    def now(self) -> datetime:
        """Return a fixed moment: leases never look at it."""
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        """Return the time a test has set."""
        return self.at


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def presence(clock: FakeClock) -> Presence:
    return Presence(clock, ME, LEASE_S)


def test_a_name_says_which_host_and_which_life() -> None:
    assert incarnation("h0", "b2") == ME
    assert host_of(ME) == "h0"


def test_who_was_just_heard_is_alive_until_its_lease_is_over(clock: FakeClock, presence: Presence) -> None:
    """To the moment, and anew with every heartbeat."""
    clock.at += 50
    presence.heard(OTHER)
    clock.at += LEASE_S - 0.01
    assert presence.is_alive(OTHER)
    presence.heard(OTHER)
    clock.at += LEASE_S - 0.01
    assert presence.is_alive(OTHER)
    clock.at += 0.01
    assert not presence.is_alive(OTHER)


def test_who_was_never_heard_gets_a_lease_from_the_start(clock: FakeClock, presence: Presence) -> None:
    """One that just started cannot know who else lives."""
    assert presence.is_alive(OTHER)
    clock.at += LEASE_S
    assert not presence.is_alive(OTHER)


def test_a_reconnect_starts_all_leases_anew(clock: FakeClock, presence: Presence) -> None:
    """While the bus was away nobody could be heard."""
    presence.heard(OTHER)
    clock.at += 60
    presence.reset()
    assert presence.is_alive(OTHER)
    clock.at += LEASE_S
    assert not presence.is_alive(OTHER)


def test_i_am_alive_and_my_earlier_lives_are_not(clock: FakeClock, presence: Presence) -> None:
    """The lock of this host was free: whoever had it is dead, heartbeat or not."""
    presence.heard("h0.b1")
    assert not presence.is_alive("h0.b1")
    clock.at += 1000
    assert presence.is_alive(ME)


def test_who_says_goodbye_is_gone_at_once(presence: Presence) -> None:
    """Its lease is over; a late heartbeat of that life changes nothing, another life of the host is alive."""
    presence.heard(OTHER)
    presence.gone(OTHER)
    assert not presence.is_alive(OTHER)
    presence.heard(OTHER)
    assert not presence.is_alive(OTHER)
    presence.heard("h1.b9")
    assert presence.is_alive("h1.b9")


def test_how_long_to_wait_for_a_lease(clock: FakeClock, presence: Presence) -> None:
    """What is left of it, and never nothing: the next look is a moment away."""
    presence.heard(OTHER)
    clock.at += 3
    assert presence.remaining_s(OTHER) == pytest.approx(2)
    clock.at += 100
    assert presence.remaining_s(OTHER) == pytest.approx(0.05)


def test_a_place_lives_as_long_as_any_life_of_its_host(clock: FakeClock, presence: Presence) -> None:
    """Work tied to a host waits for its next life, until the lease is over or it said goodbye."""
    presence.heard("h1.b1")
    clock.at += LEASE_S - 1
    presence.heard("h1.b2")
    clock.at += LEASE_S - 1
    assert presence.is_place_alive("h1")
    clock.at += 1
    assert not presence.is_place_alive("h1")
    presence.heard("h2.b1")
    presence.gone("h2.b1")
    assert not presence.is_place_alive("h2")


def test_an_unknown_place_gets_a_lease_from_the_start(clock: FakeClock, presence: Presence) -> None:
    """As an unknown worker does."""
    assert presence.is_place_alive("h7")
    clock.at += LEASE_S
    assert not presence.is_place_alive("h7")


def test_a_host_that_comes_back_after_a_goodbye_is_alive(presence: Presence) -> None:
    """Only that life has left."""
    presence.heard("h1.b1")
    presence.gone("h1.b1")
    presence.heard("h1.b2")
    assert presence.is_place_alive("h1")


def test_the_long_silent_are_forgotten(clock: FakeClock, presence: Presence) -> None:
    """What is remembered is bounded by who lived lately."""
    for n in range(100):
        presence.heard(f"h{n + 1}.b1")
    clock.at += 10 * LEASE_S + 1
    presence.heard("h1.b2")
    presence.forget_old()
    assert set(presence._heard) == {"h1.b2"}


def test_those_who_left_are_forgotten_too(clock: FakeClock, presence: Presence) -> None:
    """Every queue and memory has a bound."""
    for n in range(100):
        presence.gone(f"h1.b{n}")
    clock.at += 100 * LEASE_S
    presence.forget_old()
    assert not presence._left
