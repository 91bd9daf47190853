"""MCP servers that harnesses are granted, for real: their tools are offered and called, with the headers that were given."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.harnesses.base import Harness, McpServer
from adapters.harnesses.claude_code import CLAUDE_CODE
from adapters.harnesses.cline import CLINE
from adapters.harnesses.codex import CODEX
from adapters.harnesses.copilot import COPILOT
from adapters.harnesses.gemini_cli import GEMINI
from adapters.harnesses.hermes import HERMES
from adapters.harnesses.kilo import KILO
from adapters.harnesses.openclaw import OPENCLAW
from adapters.harnesses.opencode import OPENCODE
from adapters.harnesses.pi import PI
from adapters.harnesses.qwen import QWEN
from adapters.harnesses.table import HARNESSES
from adapters.harnesses.trajectory import ToolDone
from tests.support.harness_place import harness_place
from tests.support.mcp_double import McpDouble
from tests.support.model_script import EchoScript, backend_for
from tests.support.upstream import served_on

PORT = 8091
LARGE = pytest.mark.harness
THE_LARGE = (CLAUDE_CODE, OPENCODE, KILO, COPILOT, QWEN, GEMINI, CLINE, HERMES, OPENCLAW)


@pytest.mark.parametrize(
    "harness",
    [CODEX, PI, *(pytest.param(harness, marks=LARGE) for harness in THE_LARGE)],
    ids=lambda harness: harness.name,
)
async def test_a_tool_of_a_server(harness: Harness, tmp_path: Path) -> None:
    """The model's words come back through the server; what came of each call is told."""
    double = McpDouble()
    async with (
        served_on(double.app, tmp_path / "mcp.sock") as socket,
        harness_place(harness, tmp_path, EchoScript(backend_for(harness.dialect), commands=("one", "two"))) as at,
    ):
        url = await at.box.open_way_out(socket, PORT)
        server = McpServer("tools", f"{url}/mcp", {"x-gym-bus-token": 'a "secret"'})
        receipt, account = await at.run(mcp=(server,))
        assert receipt.exit_code == 0
        assert double.echoed == ["one", "two"]
        assert {headers.get("x-gym-bus-token") for headers in double.headers} == {'a "secret"'}
        done = [item for item in account.items if isinstance(item, ToolDone)]
        assert [item.is_error for item in done] == [False, False]
        assert "echo: one" in done[0].text
        assert not {"result_missing", "end_unknown", "calls_differ"} & at.joined(account).kinds


def test_all_that_take_servers_are_tried() -> None:
    tried = {CODEX.name, PI.name, *(harness.name for harness in THE_LARGE)}
    assert {harness.name for harness in HARNESSES.values() if "mcp" in harness.grants} == tried
