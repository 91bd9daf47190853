"""A small agent that speaks the Agent Client Protocol, written with its library: carried into a sandbox as text, never imported.

It asks the model that MODEL_URL leads to, offers it one tool, and has its client run the commands and keep its notes.
`AGENT_DOES` is how it is to misbehave: `crash`, `exhaust`, `refuse`, `forget` (it cannot load a session) or `hang`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

from acp import (  # type: ignore[import-not-found]
    RequestError,
    plan_entry,
    run_agent,
    start_tool_call,
    tool_terminal_ref,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
)
from acp.schema import (  # type: ignore[import-not-found]
    AgentCapabilities,
    AuthMethodAgent,
    InitializeResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
)

DOES = os.environ.get("AGENT_DOES", "")
SESSIONS = Path(os.environ["HOME"], "sessions")
WORKSPACE = Path.cwd()
BASH = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "Run a command.", "parameters": BASH}}]
OPTIONS = [
    PermissionOption(option_id="no", name="No", kind="reject_once"),
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="once", name="Once", kind="allow_once"),
]


class Small:
    """Its sessions are files in its home."""

    def on_connect(self, conn: Any) -> None:
        """Keep the client."""
        self.client = conn
        self.is_known = "AGENT_LOGIN" not in os.environ

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        """Say what it can do."""
        can = AgentCapabilities(load_session=DOES != "forget")
        methods = [] if self.is_known else [AuthMethodAgent(id="key", name="By key")]
        return InitializeResponse(protocol_version=protocol_version, agent_capabilities=can, auth_methods=methods)

    async def authenticate(self, method_id: str, **_: Any) -> None:
        """Know whoever comes with a key."""
        self.is_known = method_id == "key"

    async def new_session(self, cwd: str, **_: Any) -> Any:
        """Begin a session."""
        if not self.is_known:
            raise RequestError.auth_required()
        return NewSessionResponse(session_id=uuid.uuid4().hex)

    async def load_session(self, session_id: str, cwd: str, **_: Any) -> None:
        """Go on with a session, and repeat what was said in it."""
        for message in self._messages(session_id):
            if message["role"] == "assistant" and message["content"]:
                await self._tell(session_id, update_agent_message_text(message["content"]))

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Do nothing: it is killed then."""

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        """Work on what it is asked."""
        if DOES == "crash":
            os._exit(3)
        if DOES == "hang":
            await asyncio.sleep(3600)
        if DOES in {"exhaust", "refuse"}:
            return PromptResponse(stop_reason={"exhaust": "max_turn_requests", "refuse": "refusal"}[DOES])
        messages = self._messages(session_id)
        messages.append({"role": "user", "content": prompt[0].text})
        await self._tell(session_id, update_plan([plan_entry("Do it", status="in_progress")]))
        while True:
            reply = await asyncio.to_thread(asked, messages)
            messages.append({key: reply[key] for key in ("role", "content", "tool_calls") if reply.get(key)})
            await self._show(session_id, reply)
            if not reply.get("tool_calls"):
                break
            for call in reply["tool_calls"]:
                messages.append(await self._run(session_id, call))
        await self._keep_notes(session_id)
        await self._tell(session_id, update_plan([plan_entry("Do it", status="completed")]))
        self._keep(session_id, messages)
        return PromptResponse(stop_reason="end_turn")

    async def _keep_notes(self, session_id: str) -> None:
        """Keep three lines in the workspace, read the second again, try what leads out of it, and end a command."""
        path = f"{WORKSPACE}/notes/done.txt"
        await self.client.write_text_file(session_id=session_id, path=path, content="one\ntwo\nthree\n")
        read = await self.client.read_text_file(session_id=session_id, path=path, line=2, limit=1)
        assert read.content == "two\n", read
        for place in ("/etc/hostname", f"{WORKSPACE}/../etc/hostname"):
            try:
                await self.client.read_text_file(session_id=session_id, path=place)
            except RequestError as error:
                refused = str(error.data)
            else:
                refused = ""
            assert "outside of the workspace" in refused, place
        await self._meet_a_pipe(session_id)
        sleeping = (await self.client.create_terminal(session_id=session_id, command="sleep", args=["600"])).terminal_id
        await self.client.kill_terminal(session_id=session_id, terminal_id=sleeping)
        end = await self.client.wait_for_terminal_exit(session_id=session_id, terminal_id=sleeping)
        assert (end.exit_code, end.signal) == (None, "SIGKILL"), end

    async def _meet_a_pipe(self, session_id: str) -> None:
        """Ask for a file that nobody writes, and to write one that nobody reads."""
        pipe = WORKSPACE / "pipe"
        os.mkfifo(pipe)
        for asking in (
            self.client.read_text_file(session_id=session_id, path=str(pipe)),
            self.client.write_text_file(session_id=session_id, path=str(pipe), content="x"),
        ):
            try:
                await asking
            except RequestError as error:
                refused = str(error.data)
            else:
                refused = ""
            assert "no regular file" in refused, refused
        pipe.unlink()

    async def _show(self, session_id: str, reply: dict[str, Any]) -> None:
        if reply.get("reasoning_content"):
            await self._tell(session_id, update_agent_thought_text(reply["reasoning_content"]))
        words = reply.get("content") or ""
        for piece in (words[:4], words[4:]):
            if piece:
                await self._tell(session_id, update_agent_message_text(piece))

    async def _run(self, session_id: str, call: dict[str, Any]) -> dict[str, Any]:
        call_id, told = call["id"], json.loads(call["function"]["arguments"])
        await self._tell(session_id, start_tool_call(call_id, "bash", status="pending", raw_input={}))
        await self._tell(session_id, update_tool_call(call_id, raw_input=told))
        asking = ToolCallUpdate(tool_call_id=call_id)
        allowed = await self.client.request_permission(session_id=session_id, tool_call=asking, options=OPTIONS)
        assert (allowed.outcome.outcome, allowed.outcome.option_id) == ("selected", "once")
        await self._tell(session_id, update_tool_call(call_id, status="in_progress"))
        terminal = (await self.client.create_terminal(session_id=session_id, command=told["command"])).terminal_id
        await self._tell(session_id, update_tool_call(call_id, content=[tool_terminal_ref(terminal)]))
        end = await self.client.wait_for_terminal_exit(session_id=session_id, terminal_id=terminal)
        output = (await self.client.terminal_output(session_id=session_id, terminal_id=terminal)).output
        status = "failed" if end.exit_code else "completed"
        await self._tell(session_id, update_tool_call(call_id, status=status))
        await self.client.release_terminal(session_id=session_id, terminal_id=terminal)
        return {"role": "tool", "tool_call_id": call_id, "content": f"{output}\nexit code: {end.exit_code}"}

    async def _tell(self, session_id: str, update: Any) -> None:
        await self.client.session_update(session_id=session_id, update=update)

    @staticmethod
    def _keep(session_id: str, messages: list[dict[str, Any]]) -> None:
        SESSIONS.mkdir(exist_ok=True)
        (SESSIONS / session_id).write_text(json.dumps(messages))

    @staticmethod
    def _messages(session_id: str) -> list[dict[str, Any]]:
        kept = SESSIONS / session_id
        return json.loads(kept.read_text()) if kept.exists() else []


def asked(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model's reply; what it refuses is the turn's error."""
    body = json.dumps({"model": os.environ["MODEL"], "messages": messages, "tools": TOOLS}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {os.environ['MODEL_KEY']}"}
    request = urllib.request.Request(f"{os.environ['MODEL_URL']}/chat/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        raise RequestError(-32603, f"the model answered {error.code}", {"details": error.read().decode()}) from error


if __name__ == "__main__":
    sys.stderr.write("a small agent\n")
    asyncio.run(run_agent(Small()))
