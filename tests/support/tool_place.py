"""A gateway whose session's task offers tools, and verifiers beside it that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from actors.verifier.tool_call import CallRemote
from actors.wiring import Surroundings, make_worker
from gym_bus.clock import SystemClock
from gym_bus.memory_bus import MemoryBus
from gym_bus.runtime.presence import Presence
from gym_bus.settings import Settings
from schemas.environment import BuiltIn, Environment, RemoteTool, TaskTool, ToolGrant
from schemas.harnesses import CodexAgent
from schemas.tasks import TaskInput
from schemas.values import Message
from tests.support.gateway_place import GatewayPlace, gateway_place
from tools.task_tools import Ran, offered

NOTE: Final = BuiltIn(tool="note")
TABLE: Final = BuiltIn(tool="lookup", data={"table": {"a": "one", "b": [2, "two"]}})
FAR: Final = RemoteTool(url="http://tools.test/mcp", tool="near")
TOOLS: Final = (
    offered("note", NOTE),
    offered("lookup", TABLE),
    TaskTool(name="far", description="Somewhere else.", parameters={"type": "object"}),
)
GRANTS: Final = (ToolGrant(name="task_tools"), ToolGrant(name="plain", kind="http", required=False))
TASK: Final = TaskInput(task_id="t", messages=(Message(role="user", content="Note it."),), tools=TOOLS, grants=GRANTS)
ENVIRONMENT: Final = Environment(tools={"note": NOTE, "lookup": TABLE, "far": FAR})


@dataclass
class Far:
    """A tool somewhere else, with an effect that can be counted; it answers once it `may_end`."""

    called: list[Mapping[str, Any]] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, tool: RemoteTool, arguments: Mapping[str, Any]) -> Ran:
        """Count a call, and answer when it may."""
        assert tool == FAR
        self.called.append(arguments)
        await self.may_end.wait()
        return Ran(f"far: {len(self.called)}")


@dataclass
class ToolPlace:
    """What a test works with."""

    place: GatewayPlace
    http: httpx.AsyncClient
    group: asyncio.TaskGroup
    hosts: list[tuple[asyncio.Task[None], MemoryBus, Presence]] = field(default_factory=list)

    def start_verifier(self, call_remote: CallRemote) -> None:
        """Start a verifier that believes no other to be alive."""
        number = len(self.hosts)
        server, codec, name = self.place.server, self.place.codec, f"v{number}.x"
        presence = Presence(SystemClock(), name, lease_s=60)
        for _, _, other in self.hosts:
            presence.gone(other.worker)
        bus = MemoryBus(server, "verifier")
        unused: Any = None
        around = Surroundings(
            bus_for=lambda _: bus,
            codec=codec,
            blobs=unused,
            clock=SystemClock(),
            settings=Settings(ack_wait_s=1.0, lease_s=0.9, reread_s=0.3),
            worker=name,
            host_id=f"v{number}",
            presence=presence,
            model_for=unused,
            provider_for=unused,
            grader=unused,
            load_tasks=unused,
            look_at_log=unused,
            places=unused,
            call_remote=call_remote,
        )
        worker, places = make_worker("verifier", around)

        async def run() -> None:
            try:
                await worker.run(places)
            except asyncio.CancelledError:
                if not bus.is_dead:
                    raise

        self.hosts.append((self.group.create_task(run()), bus, presence))

    def kill_verifier(self) -> None:
        """End the last verifier that was started: nothing it does counts any more."""
        task, bus, _ = self.hosts[-1]
        bus.is_dead = True
        task.cancel()

    async def mcp(self, method: str, grant: str = "task_tools", /, **more: Any) -> dict[str, Any]:
        """Return what comes of a message to the MCP server; `session`, `id` and `url` are not its parameters."""
        headers = {"mcp-session-id": more.pop("session", "m")}
        url, message_id = more.pop("url", self.place.url), more.pop("id", 1)
        message = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": more}
        where = f"{url}/a/{self.place.token}/mcp/{grant}"
        answer = await self.http.post(where, json=message, headers=headers)
        assert answer.status_code == 200, answer.text
        said: dict[str, Any] = answer.json()
        return said

    async def call(self, name: str, arguments: Mapping[str, Any], **more: Any) -> tuple[str, bool]:
        """Return what a tool says by MCP, and whether it is an error."""
        said = (await self.mcp("tools/call", name=name, arguments=arguments, **more))["result"]
        return said["content"][0]["text"], said["isError"]


@asynccontextmanager
async def tool_place(
    call_remote: Callable[..., Any] | None = None, *, timeout_s: float = 20, **more: Any
) -> AsyncIterator[ToolPlace]:
    """Give a gateway and, with a `call_remote`, a verifier; a call may take `timeout_s`."""
    agent = CodexAgent(mcp_timeout_s=timeout_s)
    session = {"task": TASK, "environment": ENVIRONMENT, "agent": agent}
    async with (
        gateway_place(**session, **more) as place,
        httpx.AsyncClient(timeout=30) as http,
        asyncio.TaskGroup() as group,
    ):
        made = ToolPlace(place, http, group)
        if call_remote:
            made.start_verifier(call_remote)
        try:
            yield made
        finally:
            for task, _, _ in made.hosts:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({task})
