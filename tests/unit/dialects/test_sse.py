"""Events come out of bytes whole, however the bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.dialects.base import Malformed
from providers.dialects.sse import EventSplitter, event_bytes

LINE = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)
EVENTS = st.lists(
    st.tuples(st.none() | LINE.filter(bool), st.lists(LINE, min_size=1, max_size=3).map("\n".join)), max_size=5
)


@given(events=EVENTS, sizes=st.lists(st.integers(1, 9), min_size=1), ending=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_events_survive_any_cut(events: list[tuple[str | None, str]], sizes: list[int], ending: bytes) -> None:
    """Also with U+2028 inside, with every line ending, and cut between CR and LF."""
    names = [(name.removeprefix(" ") if name and not name.startswith(" ") else None, data) for name, data in events]
    stream = b"".join(event_bytes(data, name) for name, data in names).replace(b"\n", ending)
    splitter, found, at, n = EventSplitter(), [], 0, 0
    while at < len(stream):
        size = sizes[n % len(sizes)]
        found += splitter.feed(stream[at : at + size])
        at, n = at + size, n + 1
    found += splitter.feed(b": the end\n\n")
    assert [(e.name, e.data) for e in found] == names
    assert not splitter.is_torn


def test_comments_names_without_data_and_byte_order_marks_are_no_events() -> None:
    splitter = EventSplitter()
    assert (
        splitter.feed(b"\xef\xbb\xbf: hello\n\nevent: ping\n\nid: 7\nretry: 3\ndata:x\ndata: y\n\n")[0].data == "x\ny"
    )
    assert splitter.feed(b"data: torn") == []
    assert splitter.is_torn


def test_the_bytes_of_an_event_are_kept() -> None:
    """So that they can be passed on unchanged."""
    stream = b'event: a\r\nid: 5\r\ndata: {"x": 1}\r\n\r\ndata: 2\r\n\r\n'
    assert b"".join(e.raw for e in EventSplitter().feed(stream)) == stream


def test_what_is_too_large_or_no_text_is_malformed() -> None:
    splitter = EventSplitter(max_bytes=100)
    assert splitter.feed(b"data: 0123456789" * 6) == []
    with pytest.raises(Malformed, match="more than 100 bytes"):
        splitter.feed(b"data: 0123456789")
    with pytest.raises(Malformed, match="UTF-8"):
        EventSplitter().feed(b"data: \xff\n\n")


def test_an_event_whose_lines_end_with_cr_alone_is_there_at_once() -> None:
    """Nothing more need come, and an LF that comes in the next chunk makes no other event of it."""
    splitter = EventSplitter()
    assert [e.data for e in splitter.feed(b"data: 1\r\rdata: 2\r\r")] == ["1", "2"]
    assert not splitter.is_torn
    assert splitter.feed(b"data: 3\r") == []
    assert [e.data for e in splitter.feed(b"\n\r")] == ["3"]
    assert splitter.feed(b"\n") == []
    assert not splitter.is_torn
