"""What a task offers the agent's own program beside its words: tools, servers, skills, and who can be given them."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.harnesses import server_check
from adapters.harnesses.outcomes import Seen, outcome
from adapters.harnesses.table import HARNESSES
from schemas.environment import TaskTool, ToolGrant
from schemas.events import (
    ActivationCompleted,
    LaunchRequested,
    SandboxRequested,
    SessionFailed,
)
from schemas.harnesses import CodexAgent, MiniSweAgent, Program
from schemas.sandboxes import Bubblewrap
from schemas.tasks import Evidence, McpServer, TaskInput
from schemas.values import Failure, Message
from tests.unit.test_launched_machine import CREATED, ENDED, SETTLED, new

PLAIN = ToolGrant(name="plain", kind="http")
SERVER = ToolGrant(name="task_tools")


def with_tools(*grants: ToolGrant) -> TaskInput:
    tools = (TaskTool(name="note", description="Write down.", parameters={"type": "object"}),)
    return TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),), tools=tools, grants=grants)


def launch_of(agent: Program, *grants: ToolGrant) -> LaunchRequested:
    """Return how the program of a task with tools is launched."""
    asked = new(agent=agent, task=with_tools(*grants)).given(("box", SandboxRequested(sandbox=Bubblewrap())), CREATED)
    (launch,) = asked.decided
    assert isinstance(launch, LaunchRequested)
    return launch


def test_a_program_that_takes_servers_is_given_the_tasks_tools_as_one() -> None:
    """A grant by plain HTTP that is not required is left out."""
    optional = ToolGrant(name="plain", kind="http", required=False)
    launch = launch_of(CodexAgent(), SERVER, optional)
    assert (launch.mcp_grants, launch.has_tool_command, launch.prompt) == (("task_tools",), False, "Do it.")


def test_a_program_that_takes_no_servers_is_told_of_a_command() -> None:
    """Whichever way the task grants; the words are in the launch's request, so they are on record."""
    for grants in ((SERVER,), (PLAIN,), (SERVER, PLAIN)):
        launch = launch_of(MiniSweAgent(), *grants)
        assert (launch.mcp_grants, launch.has_tool_command) == ((), True)
        assert launch.prompt.startswith("Do it.\n\n")
        assert "gym-tool NAME" in launch.prompt
        assert "- note: Write down." in launch.prompt


def test_a_required_grant_that_cannot_be_used_fails_before_anything_is_made() -> None:
    """The message names who could use it."""
    (failed,) = new(task=with_tools(SERVER, PLAIN)).decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("unsupported", True)
    assert "codex_agent cannot use the grant 'plain', tools by plain HTTP" in failed.failure.message
    able = ", ".join(sorted(name for name, harness in HARNESSES.items() if "http" in harness.grants))
    assert f"those that can: {able}" in failed.failure.message
    assert "mini_swe_agent" in able


NEAR = McpServer(name="The Weather", transport="stdio", command="weather")


def test_every_launch_is_told_which_servers_must_be_there() -> None:
    """Those of grants that are required, and all that the task brings along; of a later activation as of the first."""
    optional = ToolGrant(name="spare", required=False)
    brought = {
        "mcp_servers": (NEAR,),
        "skills_dir": "/skills",
        "follow_ups": ((Message(role="user", content="More."),),),
    }
    case = new(agent=CodexAgent(), task=with_tools(SERVER, optional).replaced(**brought)).given(
        ("box", SandboxRequested(sandbox=Bubblewrap())), CREATED
    )
    (first,) = case.decided
    done = ActivationCompleted(activation=1, evidence=Evidence(answer="x", stop_reason="stop", turns=1), session_id="s")
    again = case.given(("go", first), ("done", done))
    (begun,) = again.decided
    (second,) = again.given(("begun", begun)).decided
    for number, launch in enumerate((first, second), 1):
        assert isinstance(launch, LaunchRequested)
        assert (launch.activation, launch.mcp_grants, launch.required) == (
            number,
            ("task_tools", "spare"),
            ("task_tools",),
        )
        assert (launch.mcp_servers, launch.skills_dir) == ((NEAR,), "/skills")


@pytest.mark.parametrize(
    ("agent", "changes", "words"),
    [
        (
            CodexAgent(),
            {"mcp_servers": (NEAR.replaced(name="Task-Tools"),)},
            "its MCP server 'Task-Tools' is called like the grant 'task_tools': task_tools",
        ),
        (
            MiniSweAgent(),
            {"mcp_servers": (NEAR,)},
            "which mini_swe_agent cannot be given; those that can: claude_code_agent",
        ),
        (MiniSweAgent(), {"skills_dir": "/skills"}, "skills in /skills, which mini_swe_agent cannot be given"),
    ],
)
def test_what_a_task_brings_along_and_cannot_be_given_fails_before_anything_is_made(
    agent: Program, changes: dict[str, Any], words: str
) -> None:
    (failed,) = new(agent=agent, task=with_tools(SERVER).replaced(**changes)).decided
    assert isinstance(failed, SessionFailed)
    assert (failed.failure.kind, failed.failure.terminal) == ("unsupported", True)
    assert words in failed.failure.message


def test_a_program_that_was_never_begun_for_want_of_a_server_says_so() -> None:
    """Only if the model was not asked: what a program itself says and ends with means nothing."""
    told = f"{server_check.SAID} is not to be used: near: it ended"
    ended = ENDED.replaced(exit_code=server_check.UNREACHED, stderr=f"warning\n{told}\n")
    none = SETTLED.replaced(calls=0, completed=0)
    found = outcome(ended, Seen(), none)
    assert found == Failure(kind="tool_unreachable", message=told, stage="seed")
    for other in (outcome(ended, Seen(), none.replaced(calls=1)), outcome(ended.replaced(exit_code=1), Seen(), none)):
        assert isinstance(other, Failure)
        assert other.kind == "agent_failed"


def test_a_task_without_tools_grants_nothing() -> None:
    task = TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),), grants=(PLAIN,))
    case = new(task=task)
    assert [type(event) for event in case.decided] == [SandboxRequested]
