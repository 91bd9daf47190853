"""Runs one Strands agent with one tool, `bash`. Carried into the machine as text; its configuration is a file, its prompt the input.

It prints JSON lines: the session, each message as it is added, how each command ended, and how it all did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from strands import Agent, tool  # type: ignore[import-not-found]
from strands.hooks import (  # type: ignore[import-not-found]
    AfterToolCallEvent,
    BeforeModelCallEvent,
    HookProvider,
    MessageAddedEvent,
)
from strands.models.openai import OpenAIModel  # type: ignore[import-not-found]
from strands.session.file_session_manager import FileSessionManager  # type: ignore[import-not-found]

OUTPUT_MAX_BYTES = 32_768
COMMAND_TIMEOUT_S = 600.0


class Telling(HookProvider):  # type: ignore[misc]
    """Prints what happens; ends the agent after so many calls of the model."""

    def __init__(self, lines: int, steps: int) -> None:
        self._lines = lines
        self._steps = steps
        self.codes: dict[str, int] = {}

    def register_hooks(self, registry: Any, **_: Any) -> None:
        """Say what to call."""
        registry.add_callback(BeforeModelCallEvent, self.before_a_call)
        registry.add_callback(MessageAddedEvent, self.added)
        registry.add_callback(AfterToolCallEvent, self.ran)

    def tell(self, kind: str, **facts: Any) -> None:
        """Print a line."""
        os.write(self._lines, (json.dumps({"type": kind, **facts}) + "\n").encode())

    def before_a_call(self, event: Any) -> None:
        """Count, and refuse what is too many."""
        self._steps -= 1
        if self._steps < 0:
            event.cancel = "max_steps"

    def added(self, event: Any) -> None:
        """Print a message."""
        usage = (event.message.get("metadata") or {}).get("usage")
        self.tell("message", role=event.message["role"], content=event.message["content"], usage=usage)

    def ran(self, event: Any) -> None:
        """Print how a command ended."""
        call_id = event.tool_use["toolUseId"]
        self.tell("tool", id=call_id, exit_code=self.codes.pop(call_id, None), duration_s=event.duration)


def run_command(command: str, workspace: str) -> tuple[int | None, str]:
    """Return a command's exit code, None at its deadline, and the end of its output."""
    process = subprocess.Popen(  # noqa: S602  what the agent is for
        command,
        shell=True,
        executable="/bin/sh",
        cwd=workspace,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output[-OUTPUT_MAX_BYTES:].decode(errors="replace")
    return process.returncode, output[-OUTPUT_MAX_BYTES:].decode(errors="replace")


def main(path: str) -> int:
    """Run what the file says; 1 if the agent failed."""
    said = json.loads(Path(path).read_text())
    lines = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no line of ours
    telling = Telling(lines, said["steps"])
    telling.tell("session", id=said["session"])

    @tool(context=True)  # type: ignore[untyped-decorator]
    def bash(command: str, tool_context: Any) -> dict[str, Any]:
        """Run a shell command in the workspace and return its output and exit code.

        Args:
            command: The command.
            tool_context: The call.
        """
        code, output = run_command(command, said["workspace"])
        if code is not None:
            telling.codes[tool_context.tool_use["toolUseId"]] = code
        words = f"{output}\nexit code: {code}" if code is not None else f"{output}\nended after {COMMAND_TIMEOUT_S:g} s"
        return {"status": "error" if code else "success", "content": [{"text": words}]}

    client = {"api_key": said["api_key"], "base_url": said["base_url"], "max_retries": 2}
    agent = Agent(
        model=OpenAIModel(client_args=client, model_id=said["model"], params={"max_tokens": said["max_tokens"]}),
        tools=[bash],
        system_prompt=said["system_prompt"],
        session_manager=FileSessionManager(session_id=said["session"], storage_dir=said["storage"]),
        agent_id="agent",
        callback_handler=None,
        hooks=[telling],
    )
    try:
        result = agent(sys.stdin.read())
    except Exception as error:  # noqa: BLE001  told, and that is its end
        telling.tell("failed", message=f"{type(error).__name__}: {error}"[:4000])
        return 1
    telling.tell("finished", reason=str(result.stop_reason))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
