"""Cline for real, in a box without a network: its turns, other words for its system prompt, its failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.cline import CLINE
from adapters.harnesses.trajectory import Finished
from tests.support.harness_place import check_the_usual_run, ends_with_last_words, harness_place

pytestmark = pytest.mark.harness


async def test_two_commands(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls."""
    async with harness_place(CLINE, tmp_path) as at:
        account = await check_the_usual_run(at)
        assert account.items[-1] == Finished("completed")
        assert ends_with_last_words(account)


async def test_what_can_be_asked_of_it(tmp_path: Path) -> None:
    """Other words for its system prompt."""
    async with harness_place(CLINE, tmp_path) as at:
        await at.run(system_prompt=SystemPrompt("-You are terse.", "replace"))
        first = at.place.upstream.bodies[0]
        assert "-You are terse." in str(first["messages"][0])
        assert "You are Cline" not in str(first["messages"][0])


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(CLINE, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
