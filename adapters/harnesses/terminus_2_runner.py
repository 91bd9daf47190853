"""Runs Harbor's Terminus-2 in the machine itself. Carried there as text; its configuration is a file, its prompt the input.

It prints JSON lines: what it says to the model, each reply, what came of what it typed, and how it all did.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from harbor.agents.terminus_2 import Terminus2  # type: ignore[import-not-found]
from harbor.agents.terminus_2.tmux_session import TmuxSession  # type: ignore[import-not-found]
from harbor.environments.base import ExecResult  # type: ignore[import-not-found]
from harbor.llms import lite_llm  # type: ignore[import-not-found]
from harbor.models.agent.context import AgentContext  # type: ignore[import-not-found]

EXEC_TIMEOUT_S = 120.0
"""For one command of its own by which it types, or reads the terminal; what it types may take longer."""
NEEDED = ("tmux", "bash")


class Here:
    """This machine, as Terminus-2 asks for one."""

    session_id = "here"
    default_user = None
    trial_paths = None

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace

    async def exec(self, command: str, **_: Any) -> Any:
        """Run a command of its own; nothing that the model wrote is run so, it is typed."""
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            command,
            cwd=self._workspace,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await asyncio.wait_for(process.communicate(), EXEC_TIMEOUT_S)
        return ExecResult(
            stdout=output.decode(errors="replace"),
            stderr=errors.decode(errors="replace"),
            return_code=process.returncode or 0,
        )

    async def is_dir(self, path: str, **_: Any) -> bool:
        """Say whether there is such a directory."""
        return Path(path).is_dir()  # noqa: ASYNC240  one call


class Told(Terminus2):  # type: ignore[misc]
    """Terminus-2, which prints what happens."""

    def __init__(self, lines: int, said: dict[str, Any]) -> None:
        self._lines = lines
        self._said = said
        self._seen = ""
        self._asked: list[str] = []
        self.completions = 0
        super().__init__(
            logs_dir=Path(said["storage"]),
            model_name=f"openai/{said['model']}",
            api_base=said["base_url"],
            max_turns=said["steps"],
            suppress_max_turns_warning=True,
            enable_summarize=False,
            record_terminal_session=False,
            model_info={
                "max_input_tokens": said["context_tokens"],
                "max_output_tokens": said["max_tokens"],
                "input_cost_per_token": 0.0,
                "output_cost_per_token": 0.0,
            },
            llm_kwargs={"api_key": said["api_key"]},
            llm_call_kwargs={"timeout": said["call_timeout_s"], "max_tokens": said["max_tokens"], "max_retries": 0},
        )

    def tell(self, kind: str, **facts: Any) -> None:
        """Print a line."""
        os.write(self._lines, (json.dumps({"type": kind, **facts}) + "\n").encode())

    async def setup(self, environment: Any) -> None:
        """Open the terminal; what it shows goes into its own storage."""
        self._session = TmuxSession(
            session_name=self.name(),
            environment=environment,
            logging_path=Path(self._said["storage"]) / "terminal",
            local_asciinema_recording_path=None,
            remote_asciinema_recording_path=None,
        )
        await self._session.start()

    async def _handle_llm_interaction(self, chat: Any, prompt: str, *rest: Any, **more: Any) -> Any:
        if prompt != self._seen:
            self.tell("said", text=prompt)
        result = await super()._handle_llm_interaction(chat, prompt, *rest, **more)
        commands, is_complete, _, _, _, reply = result
        self.completions = self.completions + 1 if is_complete else 0
        asked = {
            f"call_{self._n_episodes}_{place}": {"keystrokes": command.keystrokes, "duration": command.duration_sec}
            for place, command in enumerate(commands, 1)
        }
        self._asked = list(asked)
        usage = reply.usage
        self.tell(
            "reply",
            reply=LAST.get("id"),
            text=reply.content,
            thought=reply.reasoning_content,
            asked=asked,
            input_tokens=usage.prompt_tokens if usage else None,
            output_tokens=usage.completion_tokens if usage else None,
            cached_tokens=usage.cache_tokens if usage else None,
        )
        return result

    async def _execute_commands(self, commands: Any, session: Any) -> Any:
        begun = time.monotonic()
        timed_out, output = await super()._execute_commands(commands, session)
        spent, self._seen = time.monotonic() - begun, self._limit_output_length(output)
        for call_id in self._asked:
            is_last = call_id == self._asked[-1]
            self.tell("done", id=call_id, text=output if is_last else "", duration_s=spent if is_last else None)
        return timed_out, output


LAST: dict[str, str] = {}
"""The id of the reply that came last: Terminus-2 does not keep it."""


def keep_ids() -> None:
    """Keep what a reply is called, as it comes."""
    complete = lite_llm.litellm.acompletion

    async def kept(*arguments: Any, **more: Any) -> Any:
        response = await complete(*arguments, **more)
        LAST["id"] = str(response.id)
        return response

    lite_llm.litellm.acompletion = kept


async def run(told: Told, workspace: str, prompt: str) -> None:
    """Run it to its end; its terminal ends with it."""
    here = Here(workspace)
    try:
        await told.setup(here)
        await told.run(prompt, here, AgentContext())
    finally:
        await here.exec("tmux kill-server")


def main(path: str) -> int:
    """Run what the file says; 1 if the agent failed."""
    said = json.loads(Path(path).read_text())
    lines = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no line of ours
    logging.disable(logging.WARNING)
    storage = Path(said["storage"])
    storage.mkdir(parents=True, exist_ok=True)
    os.environ["TMUX_TMPDIR"] = str(storage)
    profile = Path(os.environ["HOME"], ".bash_profile")
    profile.write_text(f"export PATH={shlex.quote(os.environ['PATH'])}\n")  # a login shell makes its own
    keep_ids()
    told = Told(lines, said)
    if missing := [name for name in NEEDED if shutil.which(name) is None]:
        message = f"the sandbox has no {' and no '.join(missing)}, which Terminus-2 needs: use an image that has it"
        told.tell("failed", message=message)
        return 1
    try:
        asyncio.run(run(told, said["workspace"], sys.stdin.read()))
    except Exception as error:  # noqa: BLE001  told, and that is its end
        told.tell("failed", message=f"{type(error).__name__}: {error}"[:4000])
        return 1
    if told.completions < 2 and told._n_episodes >= said["steps"]:  # noqa: PLR2004, SLF001  said twice, it is done
        told.tell("failed", message=f"max_steps: {said['steps']}")
        return 1
    told.tell("finished", reason="task_complete" if told.completions else "terminal_ended")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
