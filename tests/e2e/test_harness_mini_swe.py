"""mini-swe-agent for real, in a box without a network: its turns, its bound, its failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.mini_swe import MINI_SWE
from adapters.harnesses.trajectory import Finished
from tests.support.harness_place import check_the_usual_run, harness_place

pytestmark = pytest.mark.harness


async def test_two_commands_and_the_one_that_hands_in(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls; how long commands took is not."""
    async with harness_place(MINI_SWE, tmp_path) as at:
        account = await check_the_usual_run(at)
        assert account.items[-1] == Finished("Submitted")


async def test_another_system_prompt(tmp_path: Path) -> None:
    """What looks like a template of its own stays what it is."""
    async with harness_place(MINI_SWE, tmp_path) as at:
        words = 'You are {{ terse }}, "very".'
        await at.run(system_prompt=SystemPrompt(words, "replace"))
        assert at.place.upstream.bodies[0]["messages"][0] == {"role": "system", "content": words}


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(MINI_SWE, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
