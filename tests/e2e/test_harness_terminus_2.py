"""Terminus-2 for real, in a box without a network: what it types, its end, its failures."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import Activation, Plan, ToolCommand
from adapters.harnesses.terminus_2 import TERMINUS_2, plan
from adapters.harnesses.trajectory import Finished, ToolDone
from tests.support.harness_place import check_the_usual_run, harness_place
from tests.support.model_script import script_for

pytestmark = pytest.mark.harness

SCRIPT = script_for("terminus_2_agent", "chat")


async def test_two_commands_and_an_end_that_is_said_twice(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls, each of which goes on from the one before; nothing of it runs on."""
    async with harness_place(TERMINUS_2, tmp_path) as at:
        account = await check_the_usual_run(at, has_exit_codes=False)
        assert account.items[-1] == Finished("task_complete")
        conversations = [body["messages"] for body in at.place.upstream.bodies]
        for before, after in itertools.pairwise(conversations):
            assert after[: len(before)] == before
        assert "tools" not in at.place.upstream.bodies[0]


async def test_a_terminal_that_the_model_closes(tmp_path: Path) -> None:
    """That is an end, and not a failure: what was done until then is graded."""
    async with harness_place(TERMINUS_2, tmp_path, replace(SCRIPT, commands=("echo x > x; exit 3", "true"))) as at:
        receipt, account = await at.run()
        assert (receipt.exit_code, receipt.is_clean) == (0, True)
        assert account.items[-1] == Finished("terminal_ended")


async def test_what_its_terminal_finds(tmp_path: Path) -> None:
    """The command by which a task's tools are called, and nothing of the Python that was brought along."""
    async with harness_place(TERMINUS_2, tmp_path, replace(SCRIPT, commands=("which gym-tool; env", "pwd"))) as at:
        _, account = await at.run(tool_command=ToolCommand(f"{at.base_url}/tools"))
        seen = "".join(item.text for item in account.items if isinstance(item, ToolDone))
        assert "/tmp/agent/bin/gym-tool" in seen
        assert "/opt/gym-bus" not in seen
        assert "/box" in seen


async def test_a_sandbox_without_a_terminal(tmp_path: Path) -> None:
    """It is said what is missing, and no model is asked."""

    def with_nothing(activation: Activation) -> Plan:
        planned = plan(activation)
        return replace(planned, environment={**planned.environment, "PATH": "/nowhere"})

    async with harness_place(replace(TERMINUS_2, plan=with_nothing), tmp_path) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert "no tmux" in account.failure.message
        assert at.place.upstream.bodies == []


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(TERMINUS_2, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
