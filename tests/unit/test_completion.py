"""What a shell is offered when it completes a command."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import BashComplete

from gym_bus.cli import questions
from gym_bus.cli.entry import group
from gym_bus.client import Answer
from gym_bus.errors import Permanent, Retryable
from gym_bus.settings import Settings

pytestmark = pytest.mark.usefixtures("elsewhere")


def offered(*words: str) -> list[tuple[str, str]]:
    """Return the kind and the value of each thing that is offered for the last of the words."""
    *before, incomplete = words
    shell = BashComplete(group, {}, "gym-bus", "_GYM_BUS_COMPLETE")
    return [(item.type, item.value) for item in shell.get_completions(before, incomplete)]


def values(*words: str) -> list[str]:
    return [value for _, value in offered(*words)]


def test_agents_are_offered_by_their_short_names() -> None:
    assert values("eval", "run", "--agent", "co") == ["codex", "copilot"]
    assert {"oracle", "nop", "claude_code", "qwen_code"} <= set(values("eval", "run", "--agent", ""))


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("agent.type=co",), ["agent.type=codex_agent", "agent.type=copilot_agent"]),
        (("++agent.type=code",), ["++agent.type=codex_agent"]),
        (("agent.type", "=", "code"), ["codex_agent"]),
        (("limit=3", "taskset.type", "="), ["harbor", "jsonl", "reasoning_gym"]),
        (("sandbox.type=un",), ["sandbox.type=unsafe_local"]),
        (("model.type=sw",), ["model.type=switchyard"]),
        (("agent.timeout_s=1",), []),
        (("nothing.type=",), []),
    ],
)
def test_types_are_offered_behind_their_key(words: tuple[str, ...], wanted: list[str]) -> None:
    """Also by a shell for which `=` is a word of its own."""
    assert values("eval", "run", *words) == wanted


def test_a_folder_is_offered_where_tasks_may_stand() -> None:
    assert offered("eval", "run", "ta") == [("dir", "ta")]
    assert offered("eval", "run", "--input", "ta") == [("file", "ta")]


@pytest.mark.parametrize(
    "command",
    [
        ("eval", "attach"),
        ("eval", "status"),
        ("eval", "cancel"),
        ("eval", "resume"),
        ("eval", "samples"),
        ("session", "say"),
        ("log", "show"),
        ("log", "tail"),
        ("log", "export"),
        ("eval", "run", "--run-id"),
    ],
)
def test_runs_are_offered(command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the data directory that is named."""

    async def ask(settings: Settings, *asked: Any) -> list[questions.Told]:
        assert (settings.data_dir, len(asked)) == (tmp_path / "mine", 1)
        return [questions.Told(Answer(["run_id"], ["VARCHAR"], [["sums-2"], ["sums-1"], ["other"]], truncated=False))]

    monkeypatch.setattr(questions, "ask", ask)
    data_dir = ("--data-dir", str(tmp_path / "mine"))
    place = len(command) if not command[-1].startswith("--") else len(command) - 1
    assert values(*command[:place], *data_dir, *command[place:], "su") == ["sums-2", "sums-1"]


def test_rollouts_that_wait_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the run that is named before."""

    async def ask(_: object, asked: tuple[str, Any]) -> list[questions.Told]:
        assert ("waiting_sessions" in asked[0], asked[1]) == (True, ("r1",))
        return [questions.Told(Answer(["rollout_id"], ["VARCHAR"], [["0-0"], ["1-0"]], truncated=False))]

    monkeypatch.setattr(questions, "ask", ask)
    assert values("session", "say", "r1", "") == ["0-0", "1-0"]


@pytest.mark.parametrize("trouble", [Retryable("no bus"), Permanent("no such view"), None])
def test_nothing_is_offered_and_nothing_said_where_nobody_answers(
    trouble: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell waits for it."""

    async def ask(*_: object) -> list[questions.Told]:
        if trouble:
            raise trouble
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(questions, "ask", ask)
    monkeypatch.setattr("gym_bus.cli.completion.ANSWER_WITHIN_S", 0.05)
    began = time.monotonic()
    assert values("eval", "attach", "") == []
    assert time.monotonic() - began < 1
    assert tuple(capsys.readouterr()) == ("", "")
