"""Prime Agent in a box without a network: its turns, its session, its daemon, its failures.

It is in no package. Where nobody has built it (`tests/support/prime_agents.py`), Pi's own program takes its place, with its flags and a
process that stays as its daemon does: then its
arguments, files, session and ends are shown, and not its kernel.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.prime import PRIME
from adapters.harnesses.trajectory import Finished
from schemas.harnesses import PrimeAgent
from tests.support.configured_agents import place_of
from tests.support.harness_place import check_the_usual_run, ends_with_last_words, harness_place, session_of
from tests.support.model_script import ModelScript


async def test_two_commands_and_a_session_that_goes_on(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls; its daemon is ended with it; a second activation resumes the session."""
    async with place_of(PRIME, tmp_path, ModelScript("chat")) as at:
        account = await check_the_usual_run(at)
        assert Finished("stop") in account.items
        assert ends_with_last_words(account)
        assert await at.said("grep -lz GYM_BUS_LAUNCH= /proc/[0-9]*/environ 2>/dev/null") == "", "nothing of it is left"
        session, calls = session_of(account), len(at.place.upstream.bodies)
        receipt, again = await at.run(prompt="Is it there?", resume=session)
        assert (receipt.exit_code, receipt.is_clean) == (0, True)
        assert receipt.descendants_killed > 0, "its daemon"
        assert session_of(again) == session
        assert len(at.place.upstream.bodies) == calls + 1
        assert "Is it there?" in str(at.place.upstream.bodies[-1]["messages"])
        assert "call1" in str(at.place.upstream.bodies[-1]["messages"])


async def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    """It is said which, and what to do about it; no model is asked."""
    async with harness_place(PRIME, tmp_path, agent=PrimeAgent(command=("no-such-agent", "run"))) as at:
        receipt, account = await at.run()
        assert (receipt.exit_code, receipt.is_clean, account.items) == (127, True, ())
        assert not at.place.upstream.bodies
        said = await at.said(shlex.join(at.plan().argv))
        assert said.startswith("prime_agent: the command 'no-such-agent' is not in the sandbox: set agent.command to")


@pytest.mark.harness
async def test_what_can_be_asked_of_it(tmp_path: Path) -> None:
    """Words for its system prompt, behind its own or in its place."""
    async with place_of(PRIME, tmp_path, ModelScript("chat")) as at:
        await at.run()
        own = str(at.place.upstream.bodies[0]["messages"][0]["content"])[:60]
        for mode, is_kept in (("append", True), ("replace", False)):
            calls = len(at.place.upstream.bodies)
            words = SystemPrompt("You are terse.", mode)  # type: ignore[arg-type]
            await at.run(system_prompt=words, home=f"/tmp/{mode}")
            said = str(at.place.upstream.bodies[calls]["messages"][0])
            assert "You are terse." in said
            assert (own[:40] in said) == is_kept


@pytest.mark.harness
async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with place_of(PRIME, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert (receipt.exit_code, receipt.is_clean) == (1, True)
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
