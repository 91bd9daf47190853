"""Codex for real, in a box without a network: its turns, its session, its failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.codex import CODEX
from adapters.harnesses.launching import LaunchBox
from adapters.harnesses.running import Following, account_of, begin
from adapters.harnesses.trajectory import Finished, Item, ToolDone
from tests.support.boxes import processes_with, unique_sleep, until_gone
from tests.support.harness_place import check_the_usual_run, ends_with_last_words, harness_place, session_of
from tests.support.model_script import FAILING, ModelScript


async def test_two_commands_and_a_session_that_goes_on(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls; a second activation resumes the session."""
    async with harness_place(CODEX, tmp_path) as at:
        account = await check_the_usual_run(at)
        assert Finished("complete") in account.items
        assert ends_with_last_words(account)
        session, calls = session_of(account), len(at.place.upstream.bodies)
        receipt, again = await at.run(prompt="Is it there?", resume=session)
        assert receipt.exit_code == 0
        assert session_of(again) == session
        assert len(at.place.upstream.bodies) == calls + 1
        assert "Is it there?" in str(at.place.upstream.bodies[-1]["input"])
        assert "call1" in str(at.place.upstream.bodies[-1]["input"])


async def test_what_can_be_asked_of_it(tmp_path: Path) -> None:
    """Words for its system prompt, behind its own or in its place, and tools that it does without."""
    async with harness_place(CODEX, tmp_path) as at:
        words = 'Be terse, "very".\n\tAlways.'
        await at.run(system_prompt=SystemPrompt(words), withheld=("get_goal",))
        first = at.place.upstream.bodies[0]
        assert words in [part["text"] for item in first["input"] for part in item["content"]]
        assert "get_goal" not in {tool.get("name") for tool in first["tools"]}
        calls = len(at.place.upstream.bodies)
        await at.run(system_prompt=SystemPrompt("You are terse.", "replace"), home="/tmp/other")
        replaced = at.place.upstream.bodies[calls]
        assert "You are terse." in str(replaced)
        assert "a coding agent running in the Codex CLI" not in str(replaced)


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(CODEX, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message


async def test_one_that_is_stopped_in_the_middle(tmp_path: Path) -> None:
    """What it did until then is told as it came about; the command that ran has no result, and nothing of it is left."""
    sleep = unique_sleep()
    script = ModelScript("responses", commands=(f"{FAILING}; exit 1", sleep))
    async with harness_place(CODEX, tmp_path, script) as at:
        plan = at.plan()
        launch = await begin(cast("LaunchBox", at.box), plan, "stopped", cwd="/box", timeout_s=60)
        following, seen = Following(launch, plan.traces[0]), list[Item]()
        async with asyncio.timeout(60):
            while not processes_with(sleep) or "call1" not in {getattr(item, "call_id", "") for item in seen}:
                seen += await following.more()
        receipt = await launch.stop(20)
        assert receipt is not None
        assert (receipt.ended_by, receipt.is_clean) == ("stopped", True)
        assert await until_gone(sleep)
        account = await account_of(launch, plan)
        assert next(item.exit_code for item in account.items if isinstance(item, ToolDone)) == 1
        gaps = {(gap.kind, gap.where) for gap in at.joined(account).gaps}
        assert gaps in ({("result_missing", "call1")}, {("end_unknown", "call1"), ("duration_unknown", "call1")})
