"""OpenCode for real, in a box without a network: its turns, its session, its failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.opencode import OPENCODE
from adapters.harnesses.trajectory import Finished
from tests.support.harness_place import check_the_usual_run, ends_with_last_words, harness_place, session_of

pytestmark = pytest.mark.harness


async def test_two_commands_and_a_session_that_goes_on(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls; a second activation resumes the session."""
    async with harness_place(OPENCODE, tmp_path) as at:
        account = await check_the_usual_run(at)
        assert account.items[-1] == Finished("stop")
        assert ends_with_last_words(account)
        session, calls = session_of(account), len(at.place.upstream.bodies)
        receipt, again = await at.run(prompt="Is it there?", resume=session)
        assert receipt.exit_code == 0
        assert session_of(again) == session
        assert len(at.place.upstream.bodies) == calls + 1
        assert "Is it there?" in str(at.place.upstream.bodies[-1]["messages"])
        assert "call1" in str(at.place.upstream.bodies[-1]["messages"])


async def test_what_can_be_asked_of_it(tmp_path: Path) -> None:
    """Other words for its system prompt, and tools that it does without."""
    async with harness_place(OPENCODE, tmp_path) as at:
        await at.run(system_prompt=SystemPrompt("You are terse.", "replace"), withheld=("webfetch", "task"))
        first = at.place.upstream.bodies[0]
        assert "You are terse." in str(first["messages"][0])
        offered = {tool["function"]["name"] for tool in first["tools"]}
        assert "bash" in offered
        assert not offered & {"webfetch", "task"}


async def test_its_configuration_says_what_was_meant(tmp_path: Path) -> None:
    """What would be a reference to a variable or a file stands in its system prompt as it was said."""
    words = 'Only {env:HOME} and {file:/nowhere}, {file:/etc/hostname} or "{x}".'
    async with harness_place(OPENCODE, tmp_path) as at:
        await at.run(system_prompt=SystemPrompt(words, "replace"))
        assert words in at.place.upstream.bodies[0]["messages"][0]["content"]


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(OPENCODE, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
