"""Drives one agent through one turn; its configuration is a file, its prompt the input."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION, RequestError, spawn_agent_process, text_block  # type: ignore[import-not-found]
from acp.schema import (  # type: ignore[import-not-found]
    ClientCapabilities,
    EnvVariable,
    FileSystemCapabilities,
    HttpHeader,
    HttpMcpServer,
    Implementation,
    McpServerStdio,
)

from adapters.harnesses.acp_driver.client import Client
from adapters.harnesses.acp_driver.hearing import Hearing
from adapters.harnesses.acp_driver.telling import Telling, written

READY_WITHIN_S = 120.0
"""For all before the prompt: the agent's start, its login, its session."""
ENDED_WITHIN_S = 5.0
LINE_MAX_BYTES = 64 * 1024 * 1024
MESSAGE_MAX_CHARS = 4000
SESSION_ID_MAX_CHARS = 128


class CannotDo(Exception):
    """The agent lacks what is asked of it."""


def server_of(one: dict[str, Any]) -> Any:
    """Return a server of tools as the protocol has it."""
    if "url" in one:
        headers = [HttpHeader(name=name, value=value) for name, value in one["headers"].items()]
        return HttpMcpServer(type="http", name=one["name"], url=one["url"], headers=headers)
    variables = [EnvVariable(name=name, value=value) for name, value in one.get("env", {}).items()]
    return McpServerStdio(name=one["name"], command=one["command"], args=one["args"], env=variables)


async def session_with(agent: Any, said: dict[str, Any]) -> str:
    """Return the id of a session that is ready for a prompt: a new one, or that which is gone on with."""
    allowed = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=True)
    me = Implementation(name="gym-bus", version="1")
    able = await agent.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=allowed, client_info=me)
    if able.protocol_version != PROTOCOL_VERSION:
        raise CannotDo(f"the agent speaks version {able.protocol_version} of the protocol, not {PROTOCOL_VERSION}")
    if any("url" in one for one in said["mcp"]) and not able.agent_capabilities.mcp_capabilities.http:
        raise CannotDo(
            "the agent has no client for MCP over HTTP, and is granted tools by it: set agent.tools_by=command"
        )
    if said["session"] and not able.agent_capabilities.load_session:
        raise CannotDo("the agent cannot load a session (loadSession), and agent.resumes says that it can")
    if said["authenticate"]:
        await agent.authenticate(method_id=said["authenticate"])
    servers = [server_of(one) for one in said["mcp"]]
    if said["session"]:
        await agent.load_session(cwd=said["workspace"], session_id=said["session"], mcp_servers=servers)
        return str(said["session"])
    session = str((await agent.new_session(cwd=said["workspace"], mcp_servers=servers)).session_id)
    if len(session) > SESSION_ID_MAX_CHARS:
        raise CannotDo(f"the agent calls its session by {len(session)} characters: {SESSION_ID_MAX_CHARS} at most")
    return session


async def drive(said: dict[str, Any], prompt: str, telling: Telling, hearing: Hearing) -> int:
    """Run the agent's turn; 1 if it failed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= said["environment"]
    client = Client(telling, said["workspace"], environment)
    streams = {"stderr": asyncio.subprocess.PIPE, "limit": LINE_MAX_BYTES}
    command = spawn_agent_process(
        client, *said["argv"], env=environment, cwd=said["workspace"], transport_kwargs=streams
    )
    async with command as (agent, process):
        hearing.begin(process.stderr)
        try:
            async with asyncio.timeout(READY_WITHIN_S):
                session = await session_with(agent, said)
            telling.tell("session", id=session)
            telling.tell("prompt", text=prompt)
            client.is_listening = True
            answer = await agent.prompt(session_id=session, prompt=[text_block(prompt)])
        except TimeoutError:
            return failed(telling, f"the agent was not ready for its prompt within {READY_WITHIN_S:g} s", hearing)
        except ConnectionError:
            end = await end_of(process)
            await hearing.end()
            return failed(telling, f"the agent's command {end}", hearing)
    telling.end_of_reply()
    telling.tell("finished", reason=answer.stop_reason)
    return 0


async def end_of(process: asyncio.subprocess.Process) -> str:
    """Return how a command ended that says nothing more."""
    try:
        async with asyncio.timeout(ENDED_WITHIN_S):
            return f"ended by itself, with {await process.wait()}"
    except TimeoutError:
        return "has closed its output, and goes on"


def failed(telling: Telling, message: str, hearing: Hearing) -> int:
    """Tell a failure, and what the agent's command said beside the protocol; return the exit code that says so."""
    telling.end_of_reply()
    telling.tell("failed", message=message[:MESSAGE_MAX_CHARS], said=hearing.text)
    return 1


async def main(path: str) -> int:
    """Run what the file says; 1 if the agent failed."""
    said = json.loads(Path(path).read_text())  # noqa: ASYNC240  nothing else is going on yet
    lines = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no line of ours
    telling, hearing = Telling(lines), Hearing()
    logging.basicConfig()
    logging.getLogger().addHandler(hearing)
    working = asyncio.current_task()
    if working is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        return await drive(said, sys.stdin.read(), telling, hearing)
    except asyncio.CancelledError:
        return failed(telling, "the agent was interrupted", hearing)
    except RequestError as error:
        await hearing.end()
        return failed(telling, f"{error} ({error.code}): {written(error.data)}", hearing)
    except (CannotDo, OSError, ValueError) as error:
        return failed(telling, str(error), hearing)
