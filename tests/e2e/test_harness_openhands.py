"""OpenHands for real, in a box without a network: its turns, its session, its failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.openhands import OPENHANDS
from adapters.harnesses.readers import text_of
from adapters.harnesses.trajectory import Finished
from tests.support.harness_place import check_the_usual_run, ends_with_last_words, harness_place, session_of
from tests.support.model_script import ModelScript

pytestmark = pytest.mark.harness

WORDS = 'You are {{ terse }}, "very" ${so}.'


async def test_two_commands_and_a_session_that_goes_on(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls; a second activation resumes the session, with all that was said in it."""
    async with harness_place(OPENHANDS, tmp_path) as at:
        account = await check_the_usual_run(at)
        assert account.items[-1] == Finished("finished")
        assert ends_with_last_words(account)
        before = at.place.upstream.bodies[-1]["messages"]
        receipt, again = await at.run(prompt="Is it there?", resume=session_of(account))
        assert receipt.exit_code == 0
        assert session_of(again) == session_of(account)
        told = at.place.upstream.bodies[-1]["messages"]
        assert told[: len(before)] == before
        assert "Is it there?" in str(told[-1])


async def test_words_behind_its_system_prompt(tmp_path: Path) -> None:
    """They come after its own; what looks like a template stays what it is."""
    async with harness_place(OPENHANDS, tmp_path) as at:
        await at.run(system_prompt=SystemPrompt(WORDS))
        system = text_of(at.place.upstream.bodies[0]["messages"][0]["content"])
        assert "You are OpenHands" in system
        assert system.endswith(f"\n\n{WORDS}")


async def test_words_in_place_of_its_system_prompt(tmp_path: Path) -> None:
    """Nothing else is said there, and tools that are withheld are not offered."""
    async with harness_place(OPENHANDS, tmp_path) as at:
        receipt, _ = await at.run(system_prompt=SystemPrompt(WORDS, "replace"), withheld=("think", "task_tracker"))
        assert receipt.exit_code == 0
        body = at.place.upstream.bodies[0]
        assert text_of(body["messages"][0]["content"]) == WORDS
        assert {tool["function"]["name"] for tool in body["tools"]} == {"terminal", "file_editor", "finish"}


async def test_what_its_commands_find(tmp_path: Path) -> None:
    """Nothing of the Python that was brought along: the sandbox's own works as ever."""
    script = ModelScript("chat", ("env; python3 -c 'import sys, ssl; print(sys.version_info[:2], sys.path)'",))
    async with harness_place(OPENHANDS, tmp_path, script) as at:
        await at.run()
        told = str(at.place.upstream.bodies[-1]["messages"][-1])
        assert "/opt/gym-bus" not in told


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(OPENHANDS, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
