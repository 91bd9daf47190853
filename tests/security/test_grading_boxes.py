"""What an agent hands in is graded in a fresh machine: nothing it did to its own reaches the tests, but for what the task says."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.benchmarks import tested_tasks
from providers.models.base import ModelAnswer, ModelCall
from providers.sandboxes import SandboxProvider, make_provider
from schemas.config import Retries
from schemas.events import GradingDone, GradingRequested, RolloutFinished, SandboxDestroyed, VerdictIssued
from schemas.sandboxes import SandboxConfig
from schemas.tasks import Task, TaskInput
from schemas.values import Message
from tests.support.boxes import DOCKER, config_of
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.world import World, config

RUN = f"graded{os.getpid()}"
TESTS = {"check.sh": 'test "$(cat answer/value)" = 42 && echo good'}
ROW: dict[str, Any] = {"test_command": 'sh "$TESTS"/check.sh', "tests": TESTS, "artifacts": ["answer/**"]}


def task_of(row: dict[str, Any]) -> Task:
    """Return a task that is graded by tests."""
    said = tested_tasks.tested(row)
    given = TaskInput(
        task_id="t", messages=(Message(role="user", content="Write 42 to answer/value."),), hands_in=said.hands_in
    )
    return Task(index=0, input=given, verifier=tested_tasks.VERIFIER, verifier_data=said.verifier_data())


def agent(*commands: str) -> Callable[[ModelCall], ModelAnswer]:
    """Return a model that runs commands, one a turn, and then answers."""

    def answer(call: ModelCall) -> ModelAnswer:
        if call.turn <= len(commands):
            return calls_tools(json.dumps({"command": commands[call.turn - 1]}))
        return says("done")

    return answer


async def graded(path: Path, kind: str, row: dict[str, Any], *commands: str) -> tuple[VerdictIssued, World]:
    """Return the verdict about an agent that runs `commands`."""
    world = World(tasks=1)
    world.tasks = [task_of(row)]
    providers: dict[str, SandboxProvider] = {}

    def provider_for(wanted: SandboxConfig) -> SandboxProvider:
        key = wanted.model_dump_json()
        if key not in providers:
            providers[key] = make_provider(wanted, path / f"boxes{len(providers)}")
        return providers[key]

    world.provider_for = provider_for  # type: ignore[method-assign]
    with_model(world, FakeModel(agent(*commands)))
    world.start_host()
    try:
        await world.request_run(RUN, config(sandbox=config_of(kind), retries=Retries(max_attempts=1)))
        await world.finished(RUN, 120)
        await settled(world)
    finally:
        for provider in providers.values():
            await provider.aclose()
    (verdict,) = [e.data for e in world.events() if isinstance(e.data, VerdictIssued)]
    return verdict, world


GOOD = "mkdir answer; echo 42 >answer/value"
KINDS = ["bubblewrap", DOCKER]


@pytest.mark.parametrize("kind", KINDS)
async def test_good_work_is_full_reward_and_other_work_none(tmp_path: Path, kind: str) -> None:
    """The agent's machine is closed first; then a fresh one gets what is handed in, then the tests."""
    verdict, world = await graded(tmp_path / "good", kind, ROW, GOOD)
    assert (verdict.reward, verdict.failure_reason, verdict.graded) == (1.0, None, "files")
    types = [e.type for e in world.events()]
    assert types.index(SandboxDestroyed.TYPE) < types.index(GradingRequested.TYPE)
    verdict, world = await graded(tmp_path / "bad", kind, ROW, "mkdir answer; echo 41 >answer/value")
    assert verdict.reward == 0.0
    assert "the tests ended with 1" in (verdict.failure_reason or "")
    (end,) = [e.data for e in world.events() if isinstance(e.data, RolloutFinished)]
    assert (end.state, end.failure) == ("scored", None)


CHEATS = {
    "tests that are there already": 'mkdir -p tests; echo "exit 0" >tests/check.sh; echo "exit 0" >check.sh; mkdir answer',
    "programs that come first": "mkdir -p answer bin; printf '#!/bin/sh\\nexit 0\\n' >bin/sh; chmod +x bin/sh; cp bin/sh answer/test",
    "what a shell reads first": 'mkdir answer; echo "test() { true; }; exit 0" >.profile; cp .profile answer/.profile',
    "a link to what is wanted": "mkdir answer other; echo 42 >other/value; ln -s ../other/value answer/value",
    "a link out": "mkdir answer; ln -s /proc/self/cmdline answer/value",
    "a directory that is a link": "mkdir other; echo 42 >other/value; ln -s other answer",
    "nothing at all": "true",
    "something that goes on": "mkdir other; (while :; do echo 42 >other/value; sleep 0.01; done) >/dev/null 2>&1 & sleep 0.1",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
async def test_what_is_done_to_the_agents_machine_does_not_help(tmp_path: Path, kind: str, cheat: str) -> None:
    """Only plain files that were asked for are handed on."""
    verdict, _ = await graded(tmp_path, kind, ROW, cheat)
    assert verdict.reward == 0.0


async def test_links_are_left_out_and_second_names_are_files(tmp_path: Path) -> None:
    """What the grader gets is counted, and what it does not."""
    command = "mkdir answer; echo 42 >answer/one; ln answer/one answer/value; ln -s one answer/link; mkfifo answer/pipe"
    verdict, world = await graded(tmp_path, "bubblewrap", ROW, command)
    assert verdict.reward == 1.0
    (done,) = [e.data for e in world.events() if isinstance(e.data, GradingDone)]
    assert (done.files, done.left_out) == (2, 2)


async def test_too_much_is_no_reward_and_no_failure(tmp_path: Path) -> None:
    """An agent that hands in a bomb has failed; the machine has not."""
    command = "mkdir answer; i=0; while [ $i -lt 10050 ]; do : >answer/$i; i=$((i + 1)); done; echo 42 >answer/value"
    verdict, _ = await graded(tmp_path, "bubblewrap", ROW, command)
    assert verdict.reward == 0.0
    assert verdict.failure_reason == "more than 10,000 files were handed in, and that is the most that may be"


async def test_a_workspace_that_cannot_be_kept_is_no_reward_and_no_failure(tmp_path: Path) -> None:
    """It is the agent who made it so, also outside of what is handed in."""
    deep = "i=0; while [ $i -lt 300 ]; do mkdir d; cd d; i=$((i + 1)); done"
    verdict, world = await graded(tmp_path, "bubblewrap", ROW, f"{GOOD}; {deep}")
    assert verdict.reward == 0.0
    assert "directories" in (verdict.failure_reason or "")
    assert [e.data.failure for e in world.events() if isinstance(e.data, RolloutFinished)] == [None]


@pytest.mark.parametrize("name", ["résumé.txt", "100%.txt", "答案/value"])
async def test_files_with_any_name_are_handed_in(tmp_path: Path, name: str) -> None:
    """A pattern means the name, however a snapshot writes it down."""
    row = {**ROW, "artifacts": [name], "test_command": f"test -s '{name}'"}
    verdict, _ = await graded(tmp_path, "bubblewrap", row, f"mkdir -p 答案; echo 42 >'{name}'")
    assert verdict.reward == 1.0


async def test_tests_have_a_time_limit(tmp_path: Path) -> None:
    """Code that was handed in and does not end is no reward."""
    row = {**ROW, "test_command": "sh answer/run", "test_timeout_s": 0.5}
    verdict, _ = await graded(tmp_path, "bubblewrap", row, "mkdir answer; echo 'sleep 60' >answer/run")
    assert verdict.reward == 0.0
    assert "were not done" in (verdict.failure_reason or "")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_task_may_grade_the_machine_as_it_was_left(tmp_path: Path, kind: str) -> None:
    """All of the workspace, links too, in a machine of its own, with what the task says must run; and the verdict says so."""
    row = {
        "test_command": 'sh "$TESTS"/check.sh',
        "tests": {"check.sh": 'sleep 0.5; test "$(cat link)" = 42 && test -s served && ! test -e marker'},
        "grade_machine": True,
        "services": ["echo up >served; sleep 30"],
    }
    verdict, _ = await graded(tmp_path, kind, row, "echo 42 >value; ln -s value link", "true")
    assert (verdict.reward, verdict.graded) == (1.0, "machine")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"test_command": "true"}, "want either `artifacts`"),
        ({"test_command": "true", "artifacts": ["../x"]}, "artifacts"),
        ({"test_command": "true", "artifacts": ["x"], "tests": {"/etc/x": ""}}, "below the directory of tests"),
        ({"test_command": "true", "artifacts": ["x"], "tests": {"a/../../x": ""}}, "below the directory of tests"),
        ({"test_command": "", "artifacts": ["x"]}, "test_command"),
        ({"test_command": "true", "artifacts": ["x"], "test_timeout_s": 0}, "test_timeout_s"),
    ],
)
def test_a_row_that_says_it_wrongly(row: dict[str, Any], what: str) -> None:
    """Is told before anything runs."""
    with pytest.raises(ValueError, match=what):
        tested_tasks.tested(row)
