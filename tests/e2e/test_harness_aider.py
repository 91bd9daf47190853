"""aider for real, in a box without a network: edits in words, one that does not fit, and a model that refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.aider import AIDER
from adapters.harnesses.trajectory import Finished, ReplyDone, Said, Thought, ToolAsked
from tests.support.harness_place import PROMPT, harness_place
from tests.support.model_script import THOUGHT, EditingScript

pytestmark = pytest.mark.harness


async def test_an_edit_that_does_not_fit_and_one_that_does(tmp_path: Path) -> None:
    """The model is told that the first does not; the file is made, and all turns are told and joined to the recorded calls."""
    async with harness_place(AIDER, tmp_path) as at:
        receipt, account = await at.run()
        assert (receipt.ended_by, receipt.exit_code, receipt.is_clean) == ("exit", 0, True)
        assert await at.said("cat hello.txt") == "hello from here\n"
        said = [item for item in account.items if isinstance(item, Said)]
        assert [item.role for item in said] == ["user", "assistant", "user", "assistant"]
        assert said[0].text == PROMPT
        assert "SEARCH" in said[2].text, "the model is told what did not fit"
        assert [item.text for item in account.items if isinstance(item, Thought)] == [THOUGHT]
        assert sum(isinstance(item, ReplyDone) for item in account.items) == len(at.place.upstream.bodies) == 2
        assert not any(isinstance(item, ToolAsked) for item in account.items)
        assert (account.items[-1], account.failure) == (Finished("edited"), None)
        assert at.joined(account).gaps == ()
        assert all("tools" not in body for body in at.place.upstream.bodies)


async def test_an_answer_without_an_edit(tmp_path: Path) -> None:
    """That is an end as well, and no file is there."""
    async with harness_place(AIDER, tmp_path, EditingScript("chat", edits=())) as at:
        receipt, account = await at.run()
        assert (receipt.exit_code, account.items[-1]) == (0, Finished("answered"))
        assert await at.said("ls -A") == ""


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(AIDER, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
