"""What readers make of recorded files, and of files that are cut, mixed with garbage, or written by somebody who means ill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.harnesses import (
    acp,
    claude_code,
    cline,
    codex,
    copilot,
    gemini_cli,
    hermes,
    mini_swe,
    openclaw,
    opencode,
    openhands,
    pi,
    prime,
    qwen,
    strands,
    terminus_2,
)
from adapters.harnesses.readers import DOCUMENT_MAX_BYTES, LineReader, Reader
from adapters.harnesses.trajectory import (
    Complained,
    Finished,
    Item,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)

RECORDED: Final = Path(__file__).with_name("recorded")
READERS: Final[dict[str, Callable[[], Reader]]] = {
    "acp.opencode.stdout.jsonl": acp.reader,
    "acp.refused.stdout.jsonl": acp.reader,
    "acp.stdout.jsonl": acp.reader,
    "claude_code.refused.stdout.jsonl": claude_code.reader,
    "claude_code.stdout.jsonl": claude_code.reader,
    "cline.refused.stdout.jsonl": cline.reader,
    "cline.stdout.jsonl": cline.reader,
    "codex.session.jsonl": codex.session_reader,
    "codex.stdout.jsonl": codex.output_reader,
    "codex.refused.stdout.jsonl": codex.output_reader,
    "copilot.refused.stdout.jsonl": copilot.output_reader,
    "copilot.session.jsonl": copilot.session_reader,
    "copilot.stdout.jsonl": copilot.output_reader,
    "gemini_cli.refused.stdout.jsonl": gemini_cli.output_reader,
    "gemini_cli.session.jsonl": gemini_cli.SessionReader,
    "gemini_cli.stdout.jsonl": gemini_cli.output_reader,
    "hermes.refused.stdout.jsonl": hermes.reader,
    "hermes.stdout.jsonl": hermes.reader,
    "kilo.refused.stdout.jsonl": opencode.reader,
    "kilo.stdout.jsonl": opencode.reader,
    "mini_swe.refused.trajectory.json": mini_swe.reader,
    "mini_swe.trajectory.json": mini_swe.reader,
    "openclaw.refused.stdout.jsonl": openclaw.reader,
    "openclaw.stdout.jsonl": openclaw.reader,
    "opencode.refused.stdout.jsonl": opencode.reader,
    "opencode.stdout.jsonl": opencode.reader,
    "openhands.refused.stdout.jsonl": openhands.reader,
    "openhands.stdout.jsonl": openhands.reader,
    "pi.refused.session.jsonl": pi.reader,
    "pi.session.jsonl": pi.reader,
    "prime.refused.session.jsonl": prime.reader,
    "prime.session.jsonl": prime.reader,
    "qwen.refused.stdout.jsonl": qwen.reader,
    "qwen.stdout.jsonl": qwen.reader,
    "strands.refused.stdout.jsonl": strands.reader,
    "strands.stdout.jsonl": strands.reader,
    "terminus_2.stdout.jsonl": terminus_2.reader,
}
LINES: Final = sorted(name for name in READERS if name.endswith(".jsonl"))
WHOLE: Final = (
    "acp.opencode.stdout.jsonl",
    "acp.stdout.jsonl",
    "copilot.session.jsonl",
    "gemini_cli.session.jsonl",
    "hermes.stdout.jsonl",
    "kilo.stdout.jsonl",
    "openclaw.stdout.jsonl",
    "openhands.stdout.jsonl",
    "qwen.stdout.jsonl",
    "claude_code.stdout.jsonl",
    "opencode.stdout.jsonl",
    "strands.stdout.jsonl",
    "codex.session.jsonl",
    "cline.stdout.jsonl",
    "mini_swe.trajectory.json",
    "pi.session.jsonl",
    "prime.session.jsonl",
)
"""Those that tell a whole run of the usual script."""


def content_of(name: str) -> bytes:
    return (RECORDED / name).read_bytes()


def read(name: str, content: bytes, piece: int = 1 << 20) -> tuple[list[Item], Reader]:
    reader, items = READERS[name](), []
    for begin in range(0, len(content), piece):
        items += reader.feed(content[begin : begin + piece])
    return items + reader.end(), reader


def test_every_recorded_file_has_a_reader() -> None:
    assert {path.name for path in RECORDED.iterdir()} == set(READERS)


@pytest.mark.parametrize("name", sorted(READERS))
def test_a_recorded_file_is_understood(name: str) -> None:
    """Nothing of it is unknown or a fault, however it is cut into pieces."""
    items, reader = read(name, content_of(name))
    assert items
    assert (reader.faults.total, dict(reader.unknown)) == (0, {})
    for piece in (1, 7, 1000):
        assert read(name, content_of(name), piece)[0] == items


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_run(name: str) -> None:
    """Two calls of a tool with their ends, what was thought and said, three replies or more with their ids and usage."""
    items, _ = read(name, content_of(name))
    asked = [item for item in items if isinstance(item, ToolAsked)]
    done = {item.call_id: item for item in items if isinstance(item, ToolDone)}
    assert [item.call_id for item in asked[:2]] == ["call0", "call1"]
    assert "/no/such/place" in str(json.loads(asked[0].arguments))
    assert (done["call0"].exit_code, done["call1"].exit_code) == (1, 0)
    assert (done["call0"].is_error, done["call1"].is_error) == (True, False)
    assert "No such file" in done["call0"].text
    assert name.startswith(("opencode", "kilo")) or Thought("I look around first.") in items
    assert Said("assistant", "Step 2.") in items
    replies = [item for item in items if isinstance(item, ReplyDone)]
    ids = (
        [None] * 3
        if name.startswith(("acp", "cline", "gemini_cli", "hermes", "opencode", "kilo", "qwen", "strands"))
        else ["reply0", "reply1", "reply2"]
    )
    assert [item.reply_id for item in replies] == ids
    usage = (None, None) if name.startswith(("acp", "claude", "hermes")) else (100, 10)
    assert {(item.input_tokens, item.output_tokens) for item in replies} == {usage}
    assert isinstance(items[-1], ReplyDone if name.startswith("gemini_cli") else Finished)


@pytest.mark.parametrize("name", [*WHOLE[:13], "codex.stdout.jsonl", "pi.session.jsonl", "prime.session.jsonl"])
def test_the_sessions_id_comes_first(name: str) -> None:
    assert isinstance(read(name, content_of(name))[0][0], SessionNamed)


@pytest.mark.parametrize("name", sorted(name for name in READERS if "refused" in name))
def test_a_refusal(name: str) -> None:
    items, _ = read(name, content_of(name))
    assert [item.problem for item in items if isinstance(item, Complained) and item.is_final] == ["auth"]


@pytest.mark.parametrize("name", sorted(READERS))
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_file_that_is_cut(name: str, data: st.DataObject) -> None:
    """What stands before the cut is read as it was; the cut line is counted."""
    content = content_of(name)
    end = data.draw(st.integers(0, len(content)))
    whole, _ = read(name, content)
    items, reader = read(name, content[:end])
    if name == "gemini_cli.session.jsonl" and items and isinstance(items[-1], ReplyDone):
        items.pop()  # it does not tell that a reply is over: whoever reads no more takes it that it is
    assert items == whole[: len(items)]
    assert reader.faults.total <= 1


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(
    "garbage",
    [b"\0\0\0", b"\xff\xfe{", b"[1]", b"null", b'{"type":', b"7" * 5000, b"[" * 100_000, b'{"a":' * 100_000],
    ids=range(8),
)
def test_garbage_between_lines(name: str, garbage: bytes) -> None:
    """It is counted, and the lines around it are read."""
    content = content_of(name)
    lines = content.splitlines()
    mixed = b"\n".join(part for line in lines for part in (garbage, line))
    items, reader = read(name, mixed, 4096)
    assert items == read(name, content)[0]
    assert reader.faults.malformed == len(lines)


def test_a_line_without_end() -> None:
    """Of a line that is too long nothing is kept, and the next one is read."""
    reader = LineReader(lambda _: [Finished("read")], line_max_bytes=1000)
    for _ in range(100):
        assert reader.feed(b"x" * 999) == []
    assert reader.feed(b'\n{"a": 1}\n') == [Finished("read")]
    assert reader.end() == []
    assert (reader.faults.oversized, reader.faults.total) == (1, 1)


def test_a_document_without_end() -> None:
    reader = mini_swe.reader()
    for _ in range(DOCUMENT_MAX_BYTES // (1 << 20) + 2):
        reader.feed(b" " * (1 << 20))
    assert reader.end() == []
    assert reader.faults.oversized == 1


@pytest.mark.parametrize("name", LINES)
def test_kinds_that_nobody_knows(name: str) -> None:
    """They are counted by their name, at most so many names."""
    lines = b"".join(
        json.dumps({"type": f"strange_{n}", "payload": {"type": "x"}}).encode() + b"\n" for n in range(1000)
    )
    items, reader = read(name, lines)
    assert items == []
    assert sum(reader.unknown.values()) == 1000
    assert len(reader.unknown) <= 257


def mutated(value: Any, data: st.DataObject) -> Any:
    """Return a JSON value in which something is something else, or is missing."""
    if isinstance(value, dict) and value:
        key = data.draw(st.sampled_from(sorted(value)))
        if data.draw(st.integers(0, 4)) == 0:
            return {name: one for name, one in value.items() if name != key}
        return {**value, key: mutated(value[key], data)}
    if isinstance(value, list) and value:
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], mutated(value[place], data), *value[place + 1 :]]
    return data.draw(
        st.sampled_from([None, "", "x", -1, 10**400, 1.5, True, [], {}, [None], [[]], {"type": "text"}, "\ud800"])
    )


@pytest.mark.parametrize("name", sorted(READERS))
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_records_that_say_something_else(name: str, data: st.DataObject) -> None:
    """No record, whatever it says, is an exception; items hold what their types say."""
    content = content_of(name)
    if name.endswith(".jsonl"):
        lines = content.splitlines()
        place = data.draw(st.integers(0, len(lines) - 1))
        lines[place] = json.dumps(mutated(json.loads(lines[place]), data)).encode()
        changed = b"\n".join(lines)
    else:
        changed = json.dumps(mutated(json.loads(content), data)).encode()
    items, _ = read(name, changed)
    for item in items:
        for field in ("text", "call_id", "name", "arguments", "session_id", "reason", "message"):
            assert isinstance(getattr(item, field, ""), str), item
        for field in ("exit_code", "input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens"):
            assert isinstance(getattr(item, field, None), int | None), item
        assert isinstance(getattr(item, "duration_s", None), float | int | None), item


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("400: budget_exhausted: model_calls", "budget"),
        ("context_overflow", "overflow"),
        ("401 Unauthorized", "auth"),
        ("429 Too Many Requests", "rate_limit"),
        ("stream disconnected before completion", "model"),
        ("aborted: interrupted", "aborted"),
        ("something else", "other"),
    ],
)
def test_classes_of_complaints(words: str, problem: str) -> None:
    assert complaint(words) == Complained(problem, words)  # type: ignore[arg-type]
    assert len(complaint(words * 1000).message) == 2000


def test_what_terminus_2_types_is_told_with_what_the_terminal_showed() -> None:
    """Of each reply: its words, what it has typed, and then the terminal; a terminal tells no exit codes."""
    items, _ = read("terminus_2.stdout.jsonl", content_of("terminus_2.stdout.jsonl"))
    asked = [item for item in items if isinstance(item, ToolAsked)]
    assert [json.loads(item.arguments)["keystrokes"][:6] for item in asked] == ["(ls /n", "echo h"]
    done = [item for item in items if isinstance(item, ToolDone)]
    assert [item.call_id for item in done] == [item.call_id for item in asked]
    assert ["No such file" in done[0].text, "hello from here" in done[1].text] == [True, True]
    assert {(item.exit_code, item.is_error) for item in done} == {(None, None)}
    assert [item.reply_id for item in items if isinstance(item, ReplyDone)] == ["reply0", "reply1", "reply2"]
    assert (
        "any further corrections" in [item.text for item in items if isinstance(item, Said) and item.role == "user"][-1]
    )
    assert items[-1] == Finished("task_complete")
