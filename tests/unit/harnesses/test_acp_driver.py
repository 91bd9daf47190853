"""What the driver of agents that speak the Agent Client Protocol prints, and the commands that it runs for them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from adapters.harnesses.acp import reader
from adapters.harnesses.acp_driver.hearing import Hearing
from adapters.harnesses.acp_driver.lines import part_of
from adapters.harnesses.acp_driver.telling import Telling, exit_code_in, text_in
from adapters.harnesses.acp_driver.terminals import Terminal
from adapters.harnesses.lines import LINE_MAX_BYTES
from adapters.harnesses.trajectory import (
    Complained,
    Finished,
    Item,
    Planned,
    ReplyDone,
    Said,
    Thought,
    ToolAsked,
    ToolDone,
)
from tests.support.boxes import unique_sleep, until_gone

WITHIN_S = 20


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    """Give somebody who tells, and what came of it."""
    with (tmp_path / "lines").open("w+b") as file:
        yield Told(file)


class Told:
    """Somebody who tells, and the lines of it."""

    def __init__(self, file: IO[bytes]) -> None:
        """Tell to a file."""
        self._file = file
        self.telling = Telling(file.fileno())

    def content(self) -> bytes:
        """Return the lines."""
        self._file.seek(0)
        return self._file.read()

    def items(self) -> list[Item]:
        """Return what our reader makes of the lines, without how long calls took."""
        reads = reader()
        found = [*reads.feed(self.content()), *reads.end()]
        assert (reads.faults.total, dict(reads.unknown)) == (0, {})
        return [replace(item, duration_s=None) if isinstance(item, ToolDone) else item for item in found]


def update(call_id: str, **facts: Any) -> SimpleNamespace:
    """Return what an agent sends of a call."""
    nothing = dict.fromkeys(("title", "kind", "status", "content", "raw_input", "raw_output"))
    return SimpleNamespace(tool_call_id=call_id, **{**nothing, **facts})


def words(text: str) -> SimpleNamespace:
    return SimpleNamespace(type="content", content=SimpleNamespace(type="text", text=text))


def test_pieces_are_put_together_and_a_reply_ends_with_a_result(told: Told) -> None:
    """Two calls of one reply are told in it, each once, with the arguments that came late."""
    telling = told.telling
    for kind, text in (("thought", "Hm"), ("thought", "."), ("said", "I "), ("said", "look.")):
        telling.piece(kind, text)
    telling.call(update("c1", title="ls", status="pending", raw_input={}), {})
    telling.call(update("c2", title="cat", raw_input={"file": "x"}), {})
    telling.call(update("c1", raw_input={"path": "."}), {})
    telling.call(update("c1", status="in_progress"), {})
    telling.call(update("c1", status="completed", content=[words("a b")]), {})
    telling.call(
        update("c2", title="Show x", status="failed", raw_output={"output": "no x", "metadata": {"exit": 2}}), {}
    )
    telling.call(update("c2", status="failed"), {})
    telling.piece("said", "Done.")
    telling.end_of_reply()
    telling.tell("finished", reason="end_turn")
    assert told.items() == [
        Thought("Hm."),
        Said("assistant", "I look."),
        ToolAsked("c1", "ls", '{"path": "."}', is_rewritten=True),
        ToolAsked("c2", "cat", '{"file": "x"}', is_rewritten=True),
        ReplyDone(),
        ToolDone("c1", "a b", is_error=False),
        ToolDone("c2", "no x", 2, is_error=True),
        Said("assistant", "Done."),
        ReplyDone(),
        Finished("end_turn"),
    ]
    spent = [line["duration_s"] for line in map(json.loads, told.content().splitlines()) if line["type"] == "tool_done"]
    assert len(spent) == 2
    assert min(spent) >= 0


def test_a_plan_is_told_when_it_is_another_one(told: Told) -> None:
    for status in ("pending", "pending", "completed"):
        told.telling.plan([SimpleNamespace(content="Look", status=status)])
    assert told.items() == [Planned("[pending] Look"), Planned("[completed] Look")]


@pytest.mark.parametrize(
    ("reason", "item"),
    [
        ("end_turn", Finished("end_turn")),
        ("max_tokens", Finished("max_tokens")),
        ("refusal", Finished("refusal")),
        (
            "max_turn_requests",
            Complained(
                "steps", "max_steps: the agent has asked the model as often as it may in one turn", is_final=True
            ),
        ),
        ("cancelled", Complained("aborted", "the turn was cancelled", is_final=True)),
    ],
)
def test_what_an_end_means(told: Told, reason: str, item: Finished | Complained) -> None:
    told.telling.tell("finished", reason=reason)
    assert told.items() == [item]


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\U0001f600", "\x01", "\ud83d"])
def test_nothing_that_is_said_is_too_long_for_a_line(told: Told, letter: str) -> None:
    """A long text is told in several lines; what is cut of a result or of arguments says so."""
    text = letter * 1_500_000
    told.telling.piece("said", text)
    told.telling.piece("said", "The last words.")
    told.telling.call(update("i" * 1_500_000, title=text, status="in_progress", raw_input={"a": text}), {})
    told.telling.call(update("i" * 1_500_000, status="completed", content=[words(text)]), {})
    told.telling.plan([SimpleNamespace(content=text, status="pending")] * 1000)
    items = told.items()
    said = "".join(item.text for item in items if isinstance(item, Said))
    assert (len(said), said[-15:]) == (len(text) + 15, "The last words.")
    [done] = [item for item in items if isinstance(item, ToolDone)]
    assert done.text.endswith(" more characters]")
    [asked] = [item for item in items if isinstance(item, ToolAsked)]
    assert asked.arguments.endswith(" more characters]")
    assert max(map(len, told.content().splitlines())) < LINE_MAX_BYTES


def test_many_calls_are_told_in_linear_time(told: Told) -> None:
    begun = time.process_time()
    for number in range(20_000):
        told.telling.call(update(f"c{number}", title="x", status="completed"), {})
    assert time.process_time() - begun < 5
    assert told.content().count(b'"tool_done"') == 20_000


def test_why_an_agent_failed_is_told_with_what_its_command_said(told: Told) -> None:
    """The class is that of the failure: the command's words make it no other one."""
    told.telling.tell("failed", message="the agent's command ended by itself, with 3", said="max_steps: 401")
    told.telling.tell("failed", message="the agent was interrupted", said="")
    assert told.items() == [
        Complained("other", "the agent's command ended by itself, with 3; it said: max_steps: 401", is_final=True),
        Complained("aborted", "the agent was interrupted", is_final=True),
    ]


async def test_what_a_command_says_beside_the_protocol_is_heard() -> None:
    """The end of its error output, and lines that are no JSON."""
    hearing, stream = Hearing(), asyncio.StreamReader()
    hearing.begin(stream)
    stream.feed_data(b"x" * 100_000 + b"\nno licence\n")
    stream.feed_eof()
    await hearing.end()
    assert hearing.text.endswith("x; no licence")
    assert len(hearing.text) < 1000
    logger = logging.getLogger("an-agents-protocol")
    logger.addHandler(hearing)
    try:
        json.loads("usage: agent")
    except ValueError:
        logger.exception("not read")
    logger.warning("something else")
    logger.removeHandler(hearing)
    assert hearing.text.endswith("no licence; usage: agent")


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"exit_code": 3}, 3),
        ({"metadata": {"exit": 0}}, 0),
        ({"exitCode": True}, None),
        ("3", None),
        ({"metadata": 1}, None),
    ],
)
def test_exit_codes_that_agents_tell(output: Any, code: int | None) -> None:
    assert exit_code_in(output) == code


def test_words_of_results() -> None:
    diff = SimpleNamespace(type="diff", path="/box/x", new_text="new")
    picture = SimpleNamespace(type="content", content=SimpleNamespace(type="image"))
    terminal = SimpleNamespace(type="terminal", terminal_id="t")
    assert [text_in(part) for part in (words("a"), diff, picture, terminal, None, "b", {"x": 1}, {"output": "c"})] == [
        *("a", "/box/x\nnew", "[image]", "", "", "b", '{"x": 1}', "c")
    ]


async def started(command: str, where: Path, most: int = 100) -> Terminal:
    return await Terminal.started(("/bin/sh", "-c", command), dict(os.environ), where, most)


async def test_a_command_and_the_end_of_what_it_writes(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN_S):
        whole = await started("pwd; echo to stderr >&2; exit 3", tmp_path)
        await whole.wait()
        assert (whole.text, whole.exit_code, whole.signal, whole.is_cut) == (
            f"{tmp_path}\nto stderr\n"[-100:],
            3,
            None,
            len(str(tmp_path)) > 89,
        )
        cut = await started("seq 1000; printf ä", tmp_path, 7)
        await cut.wait()
        assert (cut.text, cut.is_cut, cut.exit_code) == ("1000\nä", True, 0)


async def test_a_command_that_is_ended_with_what_it_started(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN_S):
        sleep = unique_sleep()
        one = await started(f"{sleep} & echo begun; wait", tmp_path)
        while not one.text.endswith("\n"):
            await asyncio.sleep(0.01)
        assert not one.is_over
        one.kill()
        await one.wait()
        assert (one.exit_code, one.signal) == (None, "SIGKILL")
        assert await until_gone(sleep)
        one.kill()


async def test_a_command_that_a_signal_without_a_name_has_ended(tmp_path: Path) -> None:
    async with asyncio.timeout(WITHIN_S):
        one = await started("kill -40 $$", tmp_path)
        await one.wait()
        assert (one.exit_code, one.signal) == (None, "signal 40")


async def test_a_command_that_has_ended_unheard_is_ended(tmp_path: Path) -> None:
    """It is gone for the kernel, and the loop has not been told so yet."""
    async with asyncio.timeout(WITHIN_S):
        one = await started("true", tmp_path)
        hold_up_until_gone(one._process.pid)
        one.kill()


def hold_up_until_gone(pid: int) -> None:
    """Keep the loop from hearing that a process has ended."""
    until = time.monotonic() + 2
    while time.monotonic() < until and Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("line", "limit", "part"),
    [
        (None, None, "a\x0cb\nc\u2028d\r\ne"),
        (2, 1, "c\u2028d\r\n"),
        (3, None, "e"),
        (None, 1, "a\x0cb\n"),
        (0, 0, ""),
        (-4, -4, ""),
        (10**30, 5, ""),
    ],
)
def test_lines_are_those_of_an_editor(line: int | None, limit: int | None, part: str) -> None:
    """Form feeds, which stand in many sources, and the breaks of other scripts are part of a line."""
    assert part_of("a\x0cb\nc\u2028d\r\ne", line, limit) == part
