"""Runs one OpenHands agent, made with its library. Carried into the machine as text; its configuration is a file, its prompt the input.

It prints JSON lines: the session, each event of the conversation as it comes about, and how it all did.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from openhands.sdk import (  # type: ignore[import-not-found]
    LLM,
    Agent,
    AgentContext,
    Conversation,
    ConversationExecutionStatus,
    Tool,
)
from openhands.sdk.event import (  # type: ignore[import-not-found]
    ActionEvent,
    AgentErrorEvent,
    MessageEvent,
    ObservationEvent,
    SystemPromptEvent,
)
from openhands.sdk.event.conversation_error import ConversationErrorEvent  # type: ignore[import-not-found]
from openhands.sdk.llm import content_to_str  # type: ignore[import-not-found]
from openhands.sdk.mcp.config import MCPServer  # type: ignore[import-not-found]
from openhands.tools.file_editor import FileEditorTool  # type: ignore[import-not-found]
from openhands.tools.task_tracker import TaskTrackerTool  # type: ignore[import-not-found]
from openhands.tools.terminal import TerminalTool  # type: ignore[import-not-found]

TOOLS = {tool.name: tool for tool in (TerminalTool, FileEditorTool, TaskTrackerTool)}
PARAMS = {"terminal": {"terminal_type": "subprocess"}}
BUILT_IN = {"finish": "FinishTool", "think": "ThinkTool"}


class Telling:
    """Prints what happens in a conversation."""

    def __init__(self, lines: int, llm: Any) -> None:
        self._lines = lines
        self._llm = llm
        self._begun: dict[str, float] = {}
        self.error: str | None = None

    def tell(self, kind: str, **facts: Any) -> None:
        """Print a line."""
        os.write(self._lines, (json.dumps({"type": kind, **facts}) + "\n").encode())

    def __call__(self, event: Any) -> None:
        """Print an event, if it is one that says something."""
        match event:
            case SystemPromptEvent():
                self.tell("said", role="system", text=event.system_prompt.text)
            case ActionEvent():
                self._begun[event.tool_call_id] = time.monotonic()
                call = event.tool_call
                self.tell(
                    "asked",
                    **self._reply(event.llm_response_id),
                    text="".join(content_to_str(event.thought)),
                    thought=event.reasoning_content,
                    id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                )
            case MessageEvent():
                message = event.llm_message
                text = "".join(content_to_str(message.content))
                if event.source == "agent":
                    self.tell(
                        "answered", **self._reply(event.llm_response_id), text=text, thought=message.reasoning_content
                    )
                else:
                    self.tell("said", role="user", text=text)
            case ObservationEvent():
                seen = event.observation
                code = getattr(seen, "exit_code", None)
                is_error = bool(seen.is_error or code)
                self._done(event, "".join(content_to_str(seen.to_llm_content)), is_error=is_error, code=code)
            case AgentErrorEvent():
                self._done(event, event.error, is_error=True)
            case ConversationErrorEvent():
                self.error = f"{event.code}: {event.detail}"
            case _:
                pass

    def _reply(self, reply_id: str | None) -> dict[str, Any]:
        """Return what is known of a reply: its id and its usage."""
        usages = [one for one in self._llm.metrics.token_usages if one.response_id == reply_id]
        if not usages:
            return {"reply": reply_id}
        usage = usages[-1]
        return {
            "reply": reply_id,
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens,
            "cached_tokens": usage.cache_read_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
        }

    def _done(self, event: Any, text: str, *, is_error: bool, code: int | None = None) -> None:
        begun = self._begun.pop(event.tool_call_id, None)
        spent = None if begun is None else time.monotonic() - begun
        self.tell("done", id=event.tool_call_id, text=text, is_error=is_error, exit_code=code, duration_s=spent)


def agent_of(said: dict[str, Any], llm: Any) -> Any:
    """Return the agent that the file describes."""
    withheld = set(said["withheld"])
    words = said["system_prompt"] or {"text": "", "mode": "append"}
    appended, replaced = (f"\n\n{words['text']}", None) if words["mode"] == "append" else (None, words["text"])
    return Agent(
        llm=llm,
        tools=[Tool(name=name, params=PARAMS.get(name, {})) for name in TOOLS if name not in withheld],
        include_default_tools=[kind for name, kind in BUILT_IN.items() if name not in withheld],
        mcp_config={name: MCPServer(**server).as_literal() for name, server in said["servers"].items()},
        agent_context=AgentContext(
            load_user_skills=said["has_skills"],
            current_datetime=None,
            system_message_suffix=appended if words["text"] else None,
        ),
        system_prompt=replaced,
        system_prompt_kwargs={"cli_mode": True},
    )


def main(path: str) -> int:
    """Run what the file says; 1 if the agent failed."""
    said = json.loads(Path(path).read_text())
    lines = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no line of ours
    llm = LLM(
        model=f"openai/{said['model']}",
        api_key=said["api_key"],
        base_url=said["base_url"],
        api_mode="chat",
        max_input_tokens=said["context_tokens"],
        max_output_tokens=said["max_tokens"],
        num_retries=2,
        retry_min_wait=1,
        retry_max_wait=8,
        timeout=said["call_timeout_s"],
        input_cost_per_token=0.0,
        output_cost_per_token=0.0,
        log_completions=False,
    )
    telling = Telling(lines, llm)
    if shutil.which("bash") is None:
        telling.tell("failed", message="the sandbox has no bash, in which OpenHands runs its commands")
        return 1
    try:
        conversation = Conversation(
            agent=agent_of(said, llm),
            workspace=said["workspace"],
            persistence_dir=said["storage"],
            conversation_id=uuid.UUID(said["session"]),
            callbacks=[telling],
            max_iteration_per_run=said["steps"],
            visualizer=None,
        )
        telling.tell("session", id=said["session"])
        conversation.send_message(sys.stdin.read())
        for tool in conversation.agent.tools_map.values():
            if tool.name not in TOOLS and hasattr(tool.executor, "timeout"):
                tool.executor.timeout = said["tool_timeout_s"]
        conversation.run()
        status = conversation.state.execution_status
        conversation.close()
    except Exception as error:  # noqa: BLE001  told, and that is its end
        telling.tell("failed", message=f"{type(error).__name__}: {error}"[:4000])
        return 1
    if status != ConversationExecutionStatus.FINISHED:
        message = telling.error or f"OpenHands stopped: {status.value}"
        is_bound = message.startswith("MaxIterations")
        telling.tell("failed", message=f"max_steps: {message}"[:4000] if is_bound else message[:4000])
        return 1
    telling.tell("finished", reason=status.value)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # threads of libraries do not keep it
