"""What agents and models say is shown by a terminal, and never obeyed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gym_bus import inputs
from gym_bus.cli import session
from gym_bus.cli.attach import shown_problem
from gym_bus.cli.lazy import FAILED, OK, fail
from gym_bus.cli.plain import plain
from gym_bus.errors import Permanent
from gym_bus.inputs import Standing
from gym_bus.settings import Settings
from schemas.events import ActivationCompleted, ActivationFailed
from schemas.tasks import Evidence
from schemas.values import Failure

OBEYED = "\x1b]0;title\x07\x1b[2Jgone\r\x9b31m\u202e\x08"
FAILURE = Failure(kind="agent_failed", message=f"it said: {OBEYED}")


def test_lines_and_tabs_stay() -> None:
    assert plain("a\tb\nc — ü 漢 🙂\r\n") == "a\tb\nc — ü 漢 🙂 \n"
    assert all(letter.isprintable() for letter in plain(OBEYED + "\0\x7f\u200b\ud800\u2028"))


def test_an_error_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(Permanent(f"one\n{OBEYED}"), 3) == 3
    assert_shown(capsys.readouterr().err)


def test_the_last_problem_is_shown() -> None:
    said = shown_problem({"last_failure_kind": "agent_failed", "last_failure_message": FAILURE.message, "parked": 1})
    assert said
    assert_shown(said)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("is_failed", [False, True])
def test_an_answer_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_failed: bool, as_json: bool
) -> None:
    """As JSON it is exactly what was said."""
    evidence = Evidence(answer=f"Two\nlines{OBEYED}", stop_reason="stop", turns=1)
    failed = ActivationFailed(activation=2, failure=FAILURE)
    end = failed if is_failed else ActivationCompleted(activation=2, evidence=evidence)
    standing = Standing("r", "0-0", attempt=1, inputs={2: "x"}, fingerprints={2: "f"}, answers={2: end})

    @asynccontextmanager
    async def connected(_: Settings) -> AsyncIterator[None]:
        yield

    async def opened(*_: Any) -> tuple[Any, Standing]:
        return SimpleNamespace(), standing

    async def give(*_: Any, **__: Any) -> int:
        return 2

    monkeypatch.setattr(session, "up_and_connected", connected)
    monkeypatch.setattr(session, "_opened", opened)
    monkeypatch.setattr(inputs, "give", give)
    code = asyncio.run(session._say(Settings(), ("r", "0-0"), "x", None, 1, as_json=as_json))
    assert code == (FAILED if is_failed else OK)
    said = capsys.readouterr()
    assert_shown(said.out + said.err)
    if as_json:
        row = json.loads(said.out)
        assert (row["failure"] if is_failed else row["answer"]).endswith(OBEYED)
    elif not is_failed:
        assert said.out.startswith("Two\nlines ")


def assert_shown(text: str) -> None:
    assert text.strip()
    assert all(letter.isprintable() or letter == "\n" for letter in text)
