"""Which address a call goes to: a session keeps to one, the dead ones come last, a file may change them while a run goes on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gym_bus.endpoint_file import BadEndpointFile, read_addresses
from providers.models.addresses import DOWN_FOR_S, LOOK_EVERY_S, Addresses

FOUR = tuple(f"http://10.0.0.{n}:8000/v1" for n in range(4))
SESSIONS = [f"gym.evt.0.r1.{n}-0.model.s1.1" for n in range(2000)]


class Time:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


def test_a_session_keeps_to_its_address_and_sessions_are_spread() -> None:
    """Whatever process asks, and in whatever order the addresses stand."""
    addresses, again = Addresses(FOUR), Addresses(FOUR[::-1])
    best = [addresses.ranked(session)[0] for session in SESSIONS]
    assert best == [again.ranked(session)[0] for session in SESSIONS]
    assert set(Counter(best)) == set(FOUR)
    assert min(Counter(best).values()) > len(SESSIONS) / len(FOUR) * 0.8


def test_one_address_more_moves_only_the_sessions_that_go_there() -> None:
    before, after = Addresses(FOUR), Addresses((*FOUR, "http://10.0.0.9:8000/v1"))
    moved = [after.ranked(s)[0] for s in SESSIONS if after.ranked(s)[0] != before.ranked(s)[0]]
    assert set(moved) == {"http://10.0.0.9:8000/v1"}
    assert 0.1 < len(moved) / len(SESSIONS) < 0.3


def test_an_address_where_nobody_is_comes_last_for_a_while() -> None:
    """The next one takes its place at once; when all are dead they are tried in turn."""
    time = Time()
    addresses = Addresses(FOUR, now=time)
    first, second, *_ = addresses.ranked("s")
    assert addresses.refused(first)
    assert addresses.ranked("s")[0] == second
    assert addresses.ranked("s")[-1] == first
    for address in FOUR:
        time.now_s += 0.1
        is_other_left = addresses.refused(address)
    assert not is_other_left
    time.now_s += 0.1
    assert addresses.ranked("s")[0] == FOUR[0]
    time.now_s += DOWN_FOR_S
    assert addresses.ranked("s")[0] == first


def test_one_address_has_no_other() -> None:
    addresses = Addresses(FOUR[:1])
    assert not addresses.refused(FOUR[0])
    assert addresses.ranked("s") == FOUR[:1]


def test_a_remark_may_follow_an_address(tmp_path: Path) -> None:
    """What begins a line or follows a space; a `#` inside of an address is part of it, and refused."""
    file = tmp_path / "endpoints"
    file.write_text("# all\nhttp://a:1/v1 # first\nhttp://b:9103  # second\nhttp://c\t#third\n")
    assert read_addresses(file) == ("http://a:1/v1", "http://b:9103", "http://c")


def test_a_changed_file_is_seen_within_seconds_and_not_read_every_time(tmp_path: Path) -> None:
    time, file = Time(), tmp_path / "endpoints"
    file.write_text("http://a:1/v1\n")
    addresses = Addresses((), file, 300, time)
    assert addresses.ranked("s") == ("http://a:1/v1",)
    file.write_text("http://b:1/v1\n")
    time.now_s += LOOK_EVERY_S - 0.1
    assert addresses.ranked("s") == ("http://a:1/v1",)
    time.now_s += 0.1
    assert addresses.ranked("s") == ("http://b:1/v1",)
    assert LOOK_EVERY_S <= 10


@pytest.mark.parametrize("spoil", ["gone", "", "[]", "# later\n", "http://a:1/v1\nnonsense", '["http://a:1/v1"', "[1]"])
def test_an_unfit_file_leaves_the_old_addresses_for_its_grace(tmp_path: Path, spoil: str) -> None:
    """Then there is none, and the problem names the file; a fit one ends it at once."""
    time, file = Time(), tmp_path / "endpoints"
    file.write_text("http://a:1/v1")
    addresses = Addresses((), file, 30, time)
    assert addresses.ranked("s")
    file.unlink() if spoil == "gone" else file.write_text(spoil)
    time.now_s += 6
    assert addresses.ranked("s") == ("http://a:1/v1",)
    time.now_s += 30
    assert addresses.ranked("s") == ("http://a:1/v1",), "the grace begins when the file is first seen to be unfit"
    time.now_s += 1
    assert addresses.ranked("s") == ()
    assert str(file) in addresses.problem
    assert "31 s" in addresses.problem
    file.write_text("http://b:1/v1")
    time.now_s += 6
    assert addresses.ranked("s") == ("http://b:1/v1",)


def test_a_file_that_is_not_there_yet_leaves_what_is_configured(tmp_path: Path) -> None:
    """With no address at all there is nothing to wait a grace for."""
    time = Time()
    assert Addresses((), tmp_path / "endpoints", 30, time).ranked("s") == ()
    addresses = Addresses(FOUR[:1], tmp_path / "endpoints", 30, time)
    assert addresses.ranked("s") == FOUR[:1]
    time.now_s += 31
    assert addresses.ranked("s") == ()


def test_what_a_file_may_say(tmp_path: Path) -> None:
    """Lines with remarks, or one JSON list; each address once, in order."""
    file = tmp_path / "endpoints"
    for text in (
        "\ufeff# two of them\nhttp://a:1/v1\n\n  https://b/v1  \r\nhttp://a:1/v1\n",
        ' ["http://a:1/v1", "https://b/v1"]\n',
    ):
        file.write_text(text, encoding="utf-8")
        assert read_addresses(file) == ("http://a:1/v1", "https://b/v1")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff\xfe", "holds no list"),
        (b"[" * 5000, "holds no list"),
        (b"http://a b", "no address"),
        (b"http://a:99999", "no address"),
        (b"http://", "no address"),
        (b"file:///etc/passwd", "no address"),
        (b"http://a\n" * 40_000, "more than"),
        (b"".join(b"http://a%d\n" % n for n in range(1001)), "at most"),
        (b" \n", "is empty"),
        (b"http://u:hidden@a:1/v1", "name, a query or a fragment"),
        (b"http://a:1/v1?key=hidden", "name, a query or a fragment"),
        (b"http://a/#hidden", "name, a query or a fragment"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "endpoints"
    file.write_bytes(content)
    with pytest.raises(BadEndpointFile, match=problem) as caught:
        read_addresses(file)
    assert str(file) in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadEndpointFile, match="is no file"):
        read_addresses(tmp_path)
