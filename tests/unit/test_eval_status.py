"""What `eval status` shows of runs: who does the tasks, what waits for an input, and nothing in the form of JSON."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gym_bus.cli import questions
from gym_bus.cli.entry import run
from gym_bus.cli.eval_status import print_rollouts
from gym_bus.cli.progress import LineView, Progress
from gym_bus.cli.tables import as_words
from gym_bus.client import Answer
from projections.ask import Question, answer
from projections.store import Connection
from schemas.config import Retries, ScriptedModel, SimpleAgent
from schemas.events import ActivationCompleted
from tests.fault.memory_run import speak, waiting
from tests.support.logs import project, simulate
from tests.support.world import World, config

Shown = pytest.CaptureFixture[str]


@cache
def log_of_waiting_sessions() -> World:
    """Return four rollouts: one was told nothing and ended, one was told something, and three wait."""

    async def work(world: World) -> None:
        world.tasks = [waiting(task) for task in world.tasks]
        world.start_host()
        await world.request_run("r1", config(num_repeats=2, model=ScriptedModel()))
        await speak(world, "0-0", [])
        telling = asyncio.create_task(speak(world, "0-1", ["And what is 1 + 10?", "never heard"]))
        while len(world.events(ActivationCompleted)) < 5:
            await asyncio.sleep(0.1)
        telling.cancel()
        await asyncio.sleep(5)

    return simulate(work, tasks=2)


@pytest.fixture
def waiting_run(monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Give the projection of them to the command line."""
    return asked_of(log_of_waiting_sessions(), monkeypatch)


def asked_of(world: World, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Return the projection of a log, which the command line asks from now on."""
    connection = project(list(world.server.events), world.blobs)

    async def ask(_: object, *asked: tuple[str, Any]) -> list[questions.Told]:
        found = [answer(connection, Question(sql=sql, parameters=list(values), max_rows=100)) for sql, values in asked]
        return [
            questions.Told(Answer(one["columns"], one["types"], one["rows"], truncated=one["truncated"]))
            for one in found
        ]

    monkeypatch.setattr(questions, "ask", ask)
    return connection


def test_sessions_that_wait_are_rows(waiting_run: Connection) -> None:
    """Each with the input that it has dealt with last, and until when it waits; one that was ended is none."""
    rows = waiting_run.execute(
        "select rollout_id, activation, epoch(until - since) from waiting_sessions order by all"
    ).fetchall()
    assert rows == [("0-1", 2, 3600.0), ("1-0", 1, 3600.0), ("1-1", 1, 3600.0)]


@pytest.mark.usefixtures("waiting_run")
def test_status_says_who_waits_and_who_the_agent_is(capsys: Shown, tmp_path: Path) -> None:
    """In the table of all runs, of one run, and as JSON."""
    assert run(["eval", "status", "--data-dir", str(tmp_path)]) == 0
    titles, row = capsys.readouterr().out.splitlines()[:2]
    for title, value in (("waiting_for_input", "3"), ("agent", "simple_agent"), ("model", "scripted")):
        assert row[titles.index(title) :].startswith(value)
    assert run(["eval", "status", "r1", "--data-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "agent: simple_agent\n" in shown
    assert "3 wait for an input: gym-bus session say r1 ROLLOUT WORDS\n" in shown
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith(("0-", "1-"))] == [
        ["0-1", "input"],
        ["1-0", "input"],
        ["1-1", "input"],
    ]
    assert run(["eval", "status", "r1", "--json", "--data-dir", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["waiting_for_input"], told["agent"]) == (3, "simple_agent")
    assert run(["eval", "status", "--json", "--data-dir", str(tmp_path)]) == 0
    (of_all,) = json.loads(capsys.readouterr().out)["runs"]
    assert (of_all["waiting_for_input"], of_all["agent"]) == (3, "simple_agent")


def test_who_watches_is_told_how_many_wait(waiting_run: Connection, capsys: Shown) -> None:
    """At once, in the line of progress and for programs."""
    counts = answer(waiting_run, Question(sql=questions.PROGRESS, parameters=["r1"], max_rows=1))
    assert dict(zip(counts["columns"], counts["rows"][0], strict=True))["waiting_for_input"] == 3
    view = LineView()
    view.show(Progress("r1", "running", 4, scored=1, open=3))
    view.show(Progress("r1", "running", 4, scored=1, open=3, waiting_for_input=1))
    view.show(Progress("r1", "running", 4, scored=1, open=3, waiting_for_input=3))
    assert capsys.readouterr().out.splitlines() == [
        " 25% 1/4 done | 1 scored, 0 failed, 0 masked, 3 running, 0 to come",
        " 25% 1/4 done | 1 scored, 0 failed, 0 masked, 3 running, 0 to come | 1 waits for an input",
    ]


def test_a_run_that_is_over_says_why_as_its_summary_does(
    monkeypatch: pytest.MonkeyPatch, capsys: Shown, tmp_path: Path
) -> None:
    """How many rollouts failed of what, instead of the last thing that went wrong on the way."""

    async def work(world: World) -> None:
        world.start_host()
        slow = {"model": ScriptedModel(latency_s=60), "agent": SimpleAgent(timeout_s=5)}
        await world.request_run("r1", config(retries=Retries(max_attempts=2), **slow))
        await world.finished("r1")

    connection = asked_of(simulate(work, tasks=1), monkeypatch)
    assert run(["eval", "status", "r1", "--data-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "\n1 failed: agent_timeout: " in shown
    assert "last problem" not in shown
    problem = answer(connection, Question(sql=questions.PROBLEMS, parameters=["r1"], max_rows=1))
    assert dict(zip(problem["columns"], problem["rows"][0], strict=True))["attempts_failed"] == 2
    assert run(["eval", "status", "r1", "--json", "--data-dir", str(tmp_path)]) == 0
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["counted_as"], failure["rollouts"]) == ("failed", 1)


def test_what_is_under_way_is_told_in_words(capsys: Shown) -> None:
    """Requests by their kind, and their holders, with commas between them."""
    print_rollouts(
        [
            {
                "rollout_id": "0-0",
                "stage": "session",
                "attempt": 1,
                "failures": 0,
                "open_requests": ["session_requested.v1", "tool_call_requested.v1"],
                "holders": ["h1.b2", "h2.b1"],
            }
        ]
    )
    assert "  session_requested, tool_call_requested  h1.b2, h2.b1\n" in capsys.readouterr().out


def test_one_is_one() -> None:
    """Counts and their nouns agree."""
    assert [as_words(n, "row") for n in (0, 1, 2, 1000)] == ["0 rows", "1 row", "2 rows", "1,000 rows"]
