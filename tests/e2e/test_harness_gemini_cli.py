"""Gemini CLI for real, in a box without a network: its turns, its session, its failures."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.responses import JSONResponse

from adapters.harnesses.base import SystemPrompt
from adapters.harnesses.gemini_cli import GEMINI
from adapters.harnesses.trajectory import Finished, Said
from providers.dialects.catalog import DIALECTS
from schemas.conversation import DialectName, Reasoning
from schemas.events import ModelCallRequested
from tests.support.harness_place import check_the_usual_run, ends_with_last_words, harness_place, session_of
from tests.support.model_script import THOUGHT

pytestmark = pytest.mark.harness


async def test_two_commands_and_a_session_that_goes_on(tmp_path: Path) -> None:
    """All turns are told and joined to the recorded calls, each of which continues the one before; then the session is resumed."""
    async with harness_place(GEMINI, tmp_path) as at:
        account = await check_the_usual_run(at)
        assert Finished("success") in account.asides
        assert ends_with_last_words(account)
        asked = [event.data for event in at.place.events(ModelCallRequested)]
        assert [a.turn for a in asked if isinstance(a, ModelCallRequested) and a.parent_id is None] == [1]
        assert at.place.upstream.bodies[-1]["messages"][2]["reasoning_content"] == THOUGHT, (
            "it comes back in a signature"
        )
        session, calls = session_of(account), len(at.place.upstream.bodies)
        older = f"session-2026-01-01T00-00-{session[:8]}.jsonl"
        assert await at.said(f"cd /tmp/agent/.gemini/tmp/box/chats && mv session-* {older} && ls") == f"{older}\n"
        receipt, again = await at.run(prompt="Is it there?", resume=session)
        assert receipt.exit_code == 0
        assert session_of(again) == session
        assert any(item == Said("user", "Is it there?") for item in again.items), (
            "read out of the file that it goes on with"
        )
        assert not again.unknown
        assert len(at.place.upstream.bodies) == calls + 1
        assert "Is it there?" in str(at.place.upstream.bodies[-1]["messages"])
        assert "call1" in str(at.place.upstream.bodies[-1]["messages"])


@pytest.mark.parametrize("backend", ["messages", "responses"])
async def test_a_model_of_another_dialect(tmp_path: Path, backend: DialectName) -> None:
    """It is told the same; what the model thought comes back to it, signed where it had signed it."""
    async with harness_place(GEMINI, tmp_path, backend=backend) as at:
        await check_the_usual_run(at)
        thoughts = [
            part
            for turn in DIALECTS[backend].read_request(at.place.upstream.bodies[-1]).turns
            for part in turn.parts
            if isinstance(part, Reasoning)
        ]
        assert [thought.texts or thought.summaries for thought in thoughts] == [(THOUGHT,)]
        assert thoughts[0].signature == ("signed" if backend == "messages" else None)


async def test_what_can_be_asked_of_it(tmp_path: Path) -> None:
    """More words for its system prompt or other ones, tools that it does without, and how much it may say."""
    async with harness_place(GEMINI, tmp_path) as at:
        await at.run(system_prompt=SystemPrompt("You are terse."), withheld=("invoke_agent", "write_file"))
        first = at.place.upstream.bodies[0]
        system = str(first["messages"][0])
        assert "You are terse." in system
        assert "Gemini CLI" in system, "its own words are there as well"
        offered = {tool["function"]["name"] for tool in first["tools"]}
        assert "run_shell_command" in offered
        assert not offered & {"invoke_agent", "write_file", "google_web_search"}
        assert first["max_tokens"] == 8192
        assert not first.keys() & {"temperature", "top_p", "top_k"}, "the run's configuration says how to sample"
        calls = len(at.place.upstream.bodies)
        await at.said("rm -rf /tmp/agent")
        await at.run(system_prompt=SystemPrompt("Only $HOME, {env:HOME} and @me.", "replace"))
        replaced = str(at.place.upstream.bodies[calls]["messages"][0])
        assert "Only $HOME, {env:HOME} and @me." in replaced
        assert "Gemini CLI, an" not in replaced


async def test_a_model_that_refuses(tmp_path: Path) -> None:
    """The class of the failure is told, and the exit code says that there was one."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(GEMINI, tmp_path, refused) as at:
        receipt, account = await at.run()
        assert receipt.exit_code not in {0, None}
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message
