"""What the front door shows, without a bus: progress, tables, events, errors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from adapters.harnesses.installing import installs_of
from gym_bus.cli import installs
from gym_bus.cli.attach import SILENT_AFTER_S, STARTING_S, Watch, shown_problem
from gym_bus.cli.eval_runs import paused_words
from gym_bus.cli.log import line_of
from gym_bus.cli.progress import JsonView, LineView, Progress, Rate
from gym_bus.cli.reasons import Reasons
from gym_bus.cli.results import print_next, table_rows
from gym_bus.cli.tables import cell, print_table
from gym_bus.locks import try_lock
from gym_bus.settings import Settings
from schemas.events import RunFinished


def finished(**counts: int) -> RunFinished:
    whole = {"planned": 0, "scored": 0, "failed": 0, "masked": 0, "missing": 0, **counts}
    return RunFinished(request_id="r", state="completed", **whole)


def test_a_line_says_what_it_was_counted_from() -> None:
    """Done, scored, failed, masked, running and to come add up to what is planned."""
    line = Progress(
        "r", "running", 10, scored=4, failed=1, masked=1, open=2, mean_reward=0.75, rate_per_s=2, left_s=65
    ).line()
    assert line == (
        " 60% 6/10 done | 4 scored, 1 failed, 1 masked, 2 running, 2 to come | mean reward 0.750 | 2.0 rollouts/s"
        " | 1 min 05 s left"
    )


def test_the_rate_is_of_the_last_half_minute() -> None:
    """A pause of an hour does not make the rest look slow for ever."""
    rate = Rate()
    assert rate.note(0, 0.0) is None
    assert rate.note(10, 10.0) == 1.0
    rate.note(10, 3000.0)
    assert rate.note(40, 3010.0) == 3.0


def test_json_lines_are_written_on_change_only(capsys: pytest.CaptureFixture[str]) -> None:
    """Who reads them sees each state once."""
    view = JsonView()
    for done in (1, 1, 2):
        view.show(Progress("r", "running", 3, scored=done))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["type"], line["scored"]) for line in lines] == [("progress", 1), ("progress", 2)]


def test_a_problem_is_said_at_once_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The first failure of a model, with its URL, does not wait for the next line."""
    view = LineView()
    view.show(Progress("r", "running", 3))
    for _ in range(3):
        view.show(Progress("r", "running", 3, problem="http://h/v1 refused"))
    assert capsys.readouterr().out.count("problem: http://h/v1 refused") == 1


def test_what_is_being_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A first run of an agent's program is silent for a minute otherwise."""
    monkeypatch.setattr(installs, "LOOK_EVERY_S", 0.0)
    looked, home = installs.Installs(tmp_path), installs_of(tmp_path)
    assert looked.note() is None
    (home / ".part-codex_agent-0a1b-2c3d").mkdir(parents=True)
    held = try_lock(home / ".lock-0a1b")
    assert held is not None
    assert looked.note() == "being installed, once for this host: codex_agent"
    os.close(held)
    assert looked.note() is None


@pytest.mark.parametrize(
    ("counts", "code"),
    [
        ({"planned": 2, "scored": 2}, 0),
        ({"planned": 2, "scored": 1, "masked": 1}, 0),
        ({"planned": 2, "scored": 1, "failed": 1}, 1),
        ({"planned": 2, "scored": 1, "missing": 1}, 1),
    ],
)
def test_the_exit_code_is_0_only_if_all_is_scored_or_masked(counts: dict[str, int], code: int) -> None:
    """A script learns from it whether the numbers are whole."""
    assert Watch.verdict(finished(**counts)) == code


def test_the_table_shows_every_count() -> None:
    """One row a dataset, one for all; the interval is half of its width."""
    counts = {"planned": 2, "scored": 2, "failed": 0, "masked": 0, "missing": 0}
    row = {
        "counts": counts,
        "tasks": {"planned": 1},
        "mean_reward": 0.5,
        "ci95_across_tasks": {"low": 0.25, "high": 0.75},
        "pass_at_k": {"1": {"value": 0.5}, "2": {"value": None}},
    }
    rows = table_rows({**row, "by_dataset": {"a": row, "b": row}})
    assert rows[0] == [
        "dataset",
        "tasks",
        "planned",
        "scored",
        "failed",
        "masked",
        "missing",
        "mean reward",
        "pass@1",
        "pass@2",
    ]
    assert rows[1] == ["a", "1", "2", "2", "0", "0", "0", "0.500 [0.250, 0.750]", "0.500", "-"]
    assert [line[0] for line in rows[1:]] == ["a", "b", "all"]


def test_what_to_try_next_names_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Three commands that can be copied."""
    print_next("run-1", has_failures=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  gym-bus")]
    assert len(lines) == 3
    assert all("run-1" in line for line in lines)


def test_training_rows_are_suggested_where_there_are_token_ids(capsys: pytest.CaptureFixture[str]) -> None:
    """And how to see long texts in full."""
    print_next("run-1", has_failures=False, has_token_ids=True)
    shown = capsys.readouterr().out
    assert "  gym-bus eval samples run-1\n" in shown
    assert "--json" in shown


def test_what_failed_is_told_in_lines_of_a_bounded_length() -> None:
    """How many, of what kind, and the message; then whom a budget ended."""
    failure = {
        "counted_as": "failed",
        "failure_kind": "provider_bad_request",
        "message": "x\x1b" * 400,
        "rollouts": 1200,
    }
    cancelled = {"counted_as": "missing", "failure_kind": "cancelled", "message": "enough", "rollouts": 2}
    failed, missing, ended = Reasons([failure, cancelled], {"model_calls": 3}).lines()
    assert missing == "2 missing: cancelled: enough"
    assert failed.startswith("1,200 failed: provider_bad_request: x x ")
    assert len(failed) <= 300
    assert ended == "3 ended by their budget (model_calls)"
    assert Reasons().lines() == []
    cut = Reasons([cancelled], never_begun=1045, cut_short=3).lines()
    assert cut[1:] == ["1,045 missing: never begun", "3 missing: under way when the run ended"]


def test_a_projector_that_has_not_answered_yet_is_given_time(tmp_path: Path) -> None:
    """There are no counts that could be old; in the end it is said all the same."""
    nobody: Any = None
    watch = Watch(Settings(data_dir=tmp_path), nobody, nobody, "r", JsonView())
    began = watch._began_at
    assert watch._silence(began + STARTING_S) is None
    assert watch._silence(began + 45) == "nothing has been counted in 45 s: the projector does not answer"
    watch._answered_at = began + 50
    assert watch._silence(began + 50 + SILENT_AFTER_S) is None
    assert watch._silence(began + 60) == "the counts are 10 s old: the projector does not answer"


def test_a_problem_has_its_counts() -> None:
    """The last message, and how often such things happened."""
    row = {
        "last_failure_kind": "transport_unreachable",
        "last_failure_message": "http://h: refused\nmore",
        "model_retries": 3,
    }
    assert shown_problem(row) == "http://h: refused (3 model calls tried again)"
    assert shown_problem({"last_failure_kind": None}) is None
    for failed, words in ((1, "1 attempt failed"), (2, "2 attempts failed")):
        again = {"last_failure_kind": "install_failed", "last_failure_message": "no such version"}
        assert shown_problem(again | {"attempts_failed": failed}) == f"no such version ({words})"
    assert (
        shown_problem({"last_failure_kind": "sandbox_lost", "lost_sandboxes": 2}) == "sandbox_lost (2 sandboxes lost)"
    )


def test_what_is_said_of_a_pause_names_both_ways_on() -> None:
    """What the configuration cannot have is not mended by going on with it."""
    first, *ways = paused_words("r1", "no such\x1b version").splitlines()
    assert first == "paused: no such  version"
    assert ways == [
        "when that is mended:   gym-bus eval resume r1",
        "or cancel it and start another one, for a resumed run keeps its configuration:   gym-bus eval cancel r1",
    ]


def test_an_event_is_one_line_whatever_it_holds() -> None:
    """Line ends and control characters in a payload cannot forge a line."""
    event = {
        "sequence": 7,
        "recorded_at": "2026-01-02T03:04:05.678Z",
        "rollout_id": "0-1",
        "attempt": 2,
        "actor": "sandbox",
        "key": "b2",
        "type": "tool_call_failed.v1",
        "data": {"failure": {"kind": "stale", "message": "a\n\x1b[31m" + "b" * 90}, "turn": 1},
    }
    line = line_of(event)
    assert line.split()[:5] == ["7", "03:04:05.678", "0-1-a1", "sandbox.b2", "tool_call_failed"]
    assert "turn=1 stale: a" in line
    assert line.isprintable()


def test_cells_are_short_and_printable(capsys: pytest.CaptureFixture[str]) -> None:
    """A table stays a table."""
    assert cell("a\tb\x1b") == "a b "
    assert len(cell("x" * 200)) == 80
    assert (cell(None), cell(0.123456), cell([1])) == ("", "0.1235", "[1]")
    print_table(["a", "bb"], [["xxx", 1]])
    assert capsys.readouterr().out == "a    bb\nxxx  1\n"
