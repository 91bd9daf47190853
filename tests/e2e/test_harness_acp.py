"""Agents that speak the Agent Client Protocol for real, in a box without a network: a small one, and OpenCode."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pytest
from starlette.responses import JSONResponse

from actors.gateway.grants import mint
from adapters.harnesses.acp import ACP
from adapters.harnesses.joining import GapKind
from adapters.harnesses.launching import LaunchBox
from adapters.harnesses.running import account_of, begin
from adapters.harnesses.servers import LocalServer, McpServer
from adapters.harnesses.trajectory import Finished, Planned, SessionNamed, ToolDone
from schemas.events import ModelCallCompleted, ModelCallRecalled
from schemas.harnesses import AcpAgent, AgentPackage
from tests.support.acp_agents import opencode, small
from tests.support.gateway_place import KEY
from tests.support.harness_place import (
    HOME,
    WORKSPACE,
    HarnessPlace,
    check_the_usual_run,
    ends_with_last_words,
    harness_place,
    session_of,
)
from tests.support.mcp_double import McpDouble
from tests.support.model_script import CallingScript
from tests.support.stdio_server import SCRIPT
from tests.support.upstream import served_on

SMALL_GAPS: Final[frozenset[GapKind]] = frozenset({"arguments_rewritten", "matched_by_order", "usage_differs"})
PORT: Final = 8091
LARGE: Final = pytest.mark.harness


async def goes_on(at: HarnessPlace, session: str) -> None:
    """Give the session another input, which is the only one that is told."""
    calls = len(at.place.upstream.bodies)
    receipt, again = await at.run(prompt="Is it there?", resume=session)
    assert (receipt.exit_code, again.failure) == (0, None)
    assert session_of(again) == session
    assert sum(isinstance(item, Finished) for item in again.items) == 1
    assert len(at.place.upstream.bodies) == calls + 1
    told = str(at.place.upstream.bodies[-1]["messages"])
    assert "Is it there?" in told
    assert "hello from here" in told


async def test_a_small_agent_and_its_session_that_goes_on(tmp_path: Path) -> None:
    """Its client runs its commands, keeps its notes in the workspace alone, and allows what it asks; its plan is told as well."""
    async with harness_place(ACP, tmp_path, agent=small()) as at:
        account = await check_the_usual_run(at, SMALL_GAPS)
        assert ends_with_last_words(account)
        plans = [item.text for item in account.items if isinstance(item, Planned)]
        assert plans == ["[in_progress] Do it", "[completed] Do it"]
        assert isinstance(account.items[0], SessionNamed)
        assert account.items[-1] == Finished("end_turn")
        assert await at.said("cat notes/done.txt") == "one\ntwo\nthree\n"
        await goes_on(at, session_of(account))


@LARGE
async def test_opencode_and_its_session_that_goes_on(tmp_path: Path) -> None:
    """It is installed as the run names it, asks for permission for each command, and tells its thoughts."""
    async with harness_place(ACP, tmp_path, agent=opencode()) as at:
        account = await check_the_usual_run(at)
        assert ends_with_last_words(account)
        await goes_on(at, session_of(account))


@LARGE
async def test_a_tool_of_a_server(tmp_path: Path) -> None:
    """The servers that it is granted are named with its session, and their headers."""
    double = McpDouble()
    async with (
        served_on(double.app, tmp_path / "mcp.sock") as socket,
        harness_place(ACP, tmp_path, CallingScript("chat", commands=("echo one", "say two")), opencode()) as at,
    ):
        url = await at.box.open_way_out(socket, PORT)
        far = McpServer("tools", f"{url}/mcp", {"x-gym-bus-token": 'a "secret"'})
        receipt, account = await at.run(mcp=(far, LocalServer("loud", "python3", ("-c", SCRIPT))))
        assert receipt.exit_code == 0
        assert double.echoed == ["one"]
        assert {headers.get("x-gym-bus-token") for headers in double.headers} == {'a "secret"'}
        done = [item for item in account.items if isinstance(item, ToolDone)]
        assert [item.is_error for item in done] == [False, False]
        assert ["echo: one" in done[0].text, "aloud: two" in done[1].text] == [True, True]


LOGIN: Final = {"AGENT_LOGIN": "1"}
BAD: Final[dict[str, tuple[AcpAgent, dict[str, Any], str, str]]] = {
    "it crashes": (small("crash"), {}, "other", "the agent's command ended by itself, with 3; it said: a small agent"),
    "it is not there": (small(command=("/no/such/agent",)), {}, "other", "No such file or directory: '/no/such/agent'"),
    "it speaks something else": (
        small(command=("/bin/echo", "hello")),
        {},
        "other",
        "ended by itself, with 0; it said: hello",
    ),
    "it asks too often": (small("exhaust"), {}, "steps", "as often as it may"),
    "it cannot load a session": (small("forget"), {"resume": "abc"}, "other", "loadSession"),
    "it has no client for MCP": (
        small(),
        {"mcp": (McpServer("tools", "http://127.0.0.1:1", required=False),)},
        "other",
        "MCP over HTTP",
    ),
    "it wants a login": (small(env=LOGIN), {}, "auth", "Authentication required"),
}


@LARGE
@pytest.mark.parametrize("case", sorted(BAD))
async def test_an_agent_that_fails(tmp_path: Path, case: str) -> None:
    """Why is told with its class, the exit code says that it failed, and nothing of it is left."""
    agent, asked, problem, words = BAD[case]
    async with harness_place(ACP, tmp_path, agent=agent) as at:
        receipt, account = await at.run(**asked)
        assert receipt.is_clean
        assert account.failure
        assert (account.failure.problem, receipt.exit_code) == (problem, 0 if problem == "steps" else 1)
        assert words in account.failure.message


@LARGE
async def test_a_login_and_a_refusal(tmp_path: Path) -> None:
    """It is logged in by the way that is configured; a turn that it refuses is its own end."""
    agent = small("refuse", env=LOGIN, authenticate="key")
    async with harness_place(ACP, tmp_path, agent=agent) as at:
        receipt, account = await at.run()
        assert (receipt.exit_code, account.failure, account.items[-1]) == (0, None, Finished("refusal"))


@LARGE
async def test_a_package_of_pypi(tmp_path: Path) -> None:
    """Its Python finds the package that the run names, and nothing of the driver's."""
    package = AgentPackage(ecosystem="pypi", name="agent-client-protocol", version=ACP.packages[0].version)
    agent = small(package=package)
    alone = agent.replaced(env={name: value for name, value in agent.env.items() if name != "PYTHONPATH"})
    async with harness_place(ACP, tmp_path, agent=alone) as at:
        await check_the_usual_run(at, SMALL_GAPS)


@LARGE
@pytest.mark.parametrize("agent", [small(), opencode()], ids=["small", "opencode"])
async def test_a_model_that_refuses(tmp_path: Path, agent: AcpAgent) -> None:
    """The class of the failure is told, and the exit code says that there was one; the token is not in it."""
    refused = JSONResponse({"error": {"message": "no such key", "type": "x"}}, status_code=401)
    async with harness_place(ACP, tmp_path, refused, agent) as at:
        receipt, account = await at.run()
        assert receipt.exit_code == 1
        assert account.failure
        assert account.failure.problem == "auth"
        assert at.place.token not in account.failure.message


@LARGE
@pytest.mark.parametrize("agent", [small(), opencode()], ids=["small", "opencode"])
async def test_a_second_launch_asks_nothing_new(tmp_path: Path, agent: AcpAgent) -> None:
    """All of its calls are answered from the log, and it ends as it did."""
    async with harness_place(ACP, tmp_path, agent=agent) as at:
        first, _ = await at.run()
        asked = len(at.place.upstream.bodies)
        await at.said(f"rm -rf {HOME} {WORKSPACE}/* {WORKSPACE}/.[!.]*")
        token = mint(KEY, replace(at.place.grant, launch=2))
        second, account = await at.run(base_url=at.base_url.replace(at.place.token, token))
        assert (first.exit_code, second.exit_code, account.failure) == (0, 0, None)
        assert len(at.place.upstream.bodies) == asked, at.place.upstream.bodies[asked]
        assert len(at.place.events(ModelCallRecalled)) == len(at.place.events(ModelCallCompleted)) == asked


@LARGE
async def test_an_agent_that_does_not_end(tmp_path: Path) -> None:
    """At the deadline it is interrupted: what it told is kept, and nothing of it is left."""
    async with harness_place(ACP, tmp_path, agent=small("hang")) as at:
        plan = at.plan()
        launch = await begin(cast("LaunchBox", at.box), plan, "l1", cwd=WORKSPACE, timeout_s=15)
        async with asyncio.timeout(120):
            while (receipt := await launch.wait(0.5)) is None:
                pass
        account = await account_of(launch, plan)
        await launch.close()
        assert (receipt.ended_by, receipt.is_clean) == ("timeout", True)
        assert isinstance(account.items[0], SessionNamed)
        assert account.failure
