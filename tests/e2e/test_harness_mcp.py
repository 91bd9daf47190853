"""MCP servers that harnesses are given, for real: at an address or as a command, their tools are offered and called."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.harnesses import server_check
from adapters.harnesses.base import Harness
from adapters.harnesses.claude_code import CLAUDE_CODE
from adapters.harnesses.cline import CLINE
from adapters.harnesses.codex import CODEX
from adapters.harnesses.copilot import COPILOT
from adapters.harnesses.gemini_cli import GEMINI
from adapters.harnesses.hermes import HERMES
from adapters.harnesses.kilo import KILO
from adapters.harnesses.openclaw import OPENCLAW
from adapters.harnesses.opencode import OPENCODE
from adapters.harnesses.openhands import OPENHANDS
from adapters.harnesses.pi import PI
from adapters.harnesses.qwen import QWEN
from adapters.harnesses.servers import LocalServer, McpServer
from adapters.harnesses.table import HARNESSES
from adapters.harnesses.trajectory import ToolDone
from tests.support.harness_place import harness_place
from tests.support.mcp_double import McpDouble
from tests.support.model_script import CallingScript, backend_for
from tests.support.stdio_server import SCRIPT
from tests.support.upstream import served_on

PORT = 8091
LARGE = pytest.mark.harness
THE_LARGE = (CLAUDE_CODE, OPENCODE, KILO, COPILOT, QWEN, GEMINI, CLINE, HERMES, OPENCLAW, OPENHANDS)
LOUD = LocalServer("loud", "python3", ("-c", SCRIPT))
DEAD = LocalServer("dead", "sh", ("-c", "echo no licence >&2; exit 3"))
each = pytest.mark.parametrize(
    "harness",
    [CODEX, PI, *(pytest.param(harness, marks=LARGE) for harness in THE_LARGE)],
    ids=lambda harness: harness.name,
)


@each
async def test_tools_of_servers(harness: Harness, tmp_path: Path) -> None:
    """The model's words come back through a server at an address, and one that the harness starts; what came of each is told."""
    double = McpDouble()
    script = CallingScript(backend_for(harness.dialect), commands=("echo one", "say two", "echo three"))
    async with (
        served_on(double.app, tmp_path / "mcp.sock") as socket,
        harness_place(harness, tmp_path, script) as at,
    ):
        url = await at.box.open_way_out(socket, PORT)
        server = McpServer("tools", f"{url}/mcp", {"x-gym-bus-token": 'a "secret"'})
        receipt, account = await at.run(mcp=(server, LOUD))
        assert receipt.exit_code == 0
        assert double.echoed == ["one", "three"]
        assert {headers.get("x-gym-bus-token") for headers in double.headers} == {'a "secret"'}
        done = [item for item in account.items if isinstance(item, ToolDone)]
        assert [item.is_error for item in done] == [False, False, False]
        assert ["echo: one" in done[0].text, "aloud: two" in done[1].text] == [True, True]
        assert not {"result_missing", "end_unknown", "calls_differ"} & at.joined(account).kinds
        calls = len(at.place.upstream.bodies)
        receipt, account = await at.run(mcp=(server, DEAD))
        assert (receipt.exit_code, receipt.is_clean) == (server_check.UNREACHED, True)
        assert len(at.place.upstream.bodies) == calls, "no model was asked anything"


async def test_only_required_servers_are_waited_for(tmp_path: Path) -> None:
    """One that is not required may be dead: the program does without it."""
    async with harness_place(CODEX, tmp_path, CallingScript("responses", commands=("say it",))) as at:
        optional = LocalServer("dead", DEAD.command, DEAD.args, required=False)
        receipt, account = await at.run(mcp=(optional, LOUD))
        assert receipt.exit_code == 0
        assert next(item.text for item in account.items if isinstance(item, ToolDone)).endswith("aloud: it")


def test_all_that_take_servers_are_tried() -> None:
    tried = {CODEX.name, PI.name, *(harness.name for harness in THE_LARGE)}
    assert {harness.name for harness in HARNESSES.values() if "mcp" in harness.grants} == tried
