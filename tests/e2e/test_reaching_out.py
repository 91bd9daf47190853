"""Sandboxes that may reach a host: the list is applied and stated, what was tried is in the log, nothing is done twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from gym_bus.blobs import MemoryBlobs
from projections import violations
from providers.models.base import ModelAnswer, ModelCall
from providers.sandboxes import make_provider
from schemas.config import Retries
from schemas.events import RolloutFinished, SandboxCreated, SandboxDestroyed, ToolCallCompleted
from schemas.sandboxes import Bubblewrap, NetworkPolicy, Reach
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.file_boxes import FileBox, FileBoxes
from tests.support.logs import project
from tests.support.virtual_time import run_virtual
from tests.support.world import World, config


def asks(url: str) -> str:
    """Return a command that asks the proxy for a page and prints the first line of the answer."""
    head = rf"GET {url} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    return f'exec 3<>/dev/tcp/127.0.0.1/8090; printf "{head}" >&3; head -n 1 <&3'


async def test_a_list_of_hosts_is_held_to_and_written_down(tmp_path: Path) -> None:
    """The allowed host answers, another does not, and the log says which was tried, how it went, and in which phase."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    host = f"localhost:{port}"
    policy = NetworkPolicy(agent=Reach(allow=(host,)), private=(host,))
    world = World(tasks=1)
    provider = make_provider(Bubblewrap(network=policy), tmp_path / "boxes")
    world.provider_for = lambda _: provider  # type: ignore[method-assign]

    def works(call: ModelCall) -> ModelAnswer:
        if call.turn == 1:
            commands = (asks(f"http://{host}/"), asks("http://elsewhere.example:80/"))
            return calls_tools(*(json.dumps({"command": f"bash -c '{command}'"}) for command in commands))
        return says("<answer>1</answer>")

    with_model(world, FakeModel(works))
    world.start_host()
    try:
        await world.request_run("r1", config(sandbox=Bubblewrap(network=policy)))
        await world.finished("r1", 60)
        await settled(world)
    finally:
        await provider.aclose()
        server.close()
    (created,) = [e.data for e in world.events() if isinstance(e.data, SandboxCreated)]
    assert (created.phase, created.allow) == ("agent", (host,))
    said = [e.data.output.split("\r")[0] for e in world.events() if isinstance(e.data, ToolCallCompleted)]
    assert said[0].startswith("HTTP/1.1 200")
    assert said[1].startswith("HTTP/1.1 403")
    (gone,) = [e.data for e in world.events() if isinstance(e.data, SandboxDestroyed)]
    tried = {(t.host, t.port, t.is_allowed, t.phase) for t in gone.network}
    assert tried == {("localhost", port, True, "agent"), ("elsewhere.example", 80, False, "agent")}
    rows = project(list(world.server.events), MemoryBlobs()).execute(
        "select host, is_allowed, received_bytes > 0 from network_attempts order by host"
    )
    assert rows.fetchall() == [("elsewhere.example", False, False), ("localhost", True, True)]
    assert violations(project(list(world.server.events), MemoryBlobs())) == {}


def test_what_may_have_reached_out_is_not_done_twice(tmp_path: Path) -> None:
    """With hosts to reach, a sandbox that is lost with a command ends the attempt, as the command may have had its effect."""

    def writes(call: ModelCall) -> ModelAnswer:
        if call.turn <= 3:
            return calls_tools(json.dumps({"command": f"append log {call.turn}"}))
        return says("<answer>1</answer>")

    async def scenario() -> None:
        world = World(tasks=1)
        boxes = FileBoxes(tmp_path, tmp_path / "ledger")
        world.provider_for = lambda _: boxes  # type: ignore[method-assign,assignment,return-value]
        with_model(world, FakeModel(writes))

        def dies(box: FileBox) -> None:
            if boxes.commands == 2:
                box.die()

        boxes.after_command = dies
        world.start_host()
        policy = NetworkPolicy(agent=Reach(allow=("api.example",)))
        await world.request_run("r1", config(sandbox=Bubblewrap(network=policy), retries=Retries(backoff_s=0.1)))
        await world.finished("r1", 600)
        await settled(world)
        boxes.ledger.close()
        ends = [e.data for e in world.events() if isinstance(e.data, RolloutFinished)]
        assert [end.state for end in ends] == ["retryable", "scored"]
        assert ends[0].failure is not None
        assert ends[0].failure.kind in {"sandbox_lost", "tool_lost"}

    run_virtual(scenario())
