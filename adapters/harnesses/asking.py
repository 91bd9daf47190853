"""From a session's request to what its harness is given: prompts, the sandbox it needs, and whether it can do it at all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from adapters.harnesses.base import Activation, SystemPrompt, ToolCommand, Unsupported, plan_for
from adapters.harnesses.installing import node_binary
from adapters.harnesses.installing.pins import PLACES
from adapters.harnesses.observations import observed
from adapters.harnesses.offered import why_not_offered
from adapters.harnesses.servers import LocalServer, McpServer, Server, normalised
from adapters.harnesses.table import HARNESSES, harness_of
from schemas import tasks
from schemas.harnesses import AcpAgent, AgentPackage, Continuation, Program, PythonAgent
from schemas.sandboxes import Bubblewrap, Docker, SandboxConfig, variables_of, workspace_of
from schemas.tasks import TaskInput
from schemas.values import Message

HOME: Final = "/tmp/gym-bus-agent"  # noqa: S108  in the machine; outside of the workspace, which is graded
CPU_S: Final = 3600
"""What a program may use of a processor at least: it runs for the whole of its session."""
FILE_MIB: Final = 256
PARTS: Final = "\n\n"


def asked(agent: Program, task: TaskInput) -> str:
    """Return what the agent is asked, with how it calls the task's tools if that is by a command; raises `Unsupported`."""
    words = prompt_of(task.messages)
    return PARTS.join((words, words_on_tools(task))) if reached(agent, task).has_command else words


def prompt_of(messages: tuple[Message, ...]) -> str:
    """Return what the user says; raises `Unsupported` for a conversation, which no program can be begun with."""
    if any(message.role not in {"system", "user"} or message.tool_calls for message in messages):
        msg = "the task begins with a conversation, and an agent's own program can only be given words of the user"
        raise Unsupported(msg)
    words = PARTS.join(message.content or "" for message in messages if message.role == "user")
    if not words.strip():
        msg = "the task says nothing to the agent"
        raise Unsupported(msg)
    return words


def system_prompt_of(agent: Program, messages: tuple[Message, ...]) -> str | None:
    """Return the configured words, then those of the task's own system messages; None if there are none."""
    said = [agent.system_prompt, *(message.content for message in messages if message.role == "system")]
    return PARTS.join(words for words in said if words) or None


@dataclass(frozen=True, slots=True)
class Reached:
    """How a harness reaches the tools of its task: by MCP servers of these names, by a command of its shell.

    It has to reach the `required` of these grants, and all of the task's own `servers`. It finds the task's skills in `skills`.
    """

    mcp: tuple[str, ...] = ()
    has_command: bool = False
    required: tuple[str, ...] = ()
    servers: tuple[tasks.McpServer, ...] = ()
    skills: str | None = None


NO_TOOLS: Final = Reached()


def reached(agent: Program, task: TaskInput) -> Reached:
    """Return how the harness reaches the tools of `task`; raises `Unsupported` for a required grant that it has no way to use."""
    if why := why_not_offered(agent, task):
        raise Unsupported(f"the task {task.task_id}: {why}")
    if not task.tools:
        return Reached(servers=task.mcp_servers, skills=task.skills_dir)
    can = harness_of(agent).grants
    servers: list[str] = []
    has_command = False
    for grant in task.grants:
        if grant.kind in can and grant.kind == "mcp":
            servers.append(grant.name)
        elif "http" in can:  # also for MCP: what has no client for it calls the same tools by a command
            has_command = True
        elif grant.required:
            able = sorted(name for name, harness in HARNESSES.items() if {grant.kind, "http"} & harness.grants)
            way = "tools by MCP" if grant.kind == "mcp" else "tools by plain HTTP"
            msg = f"{agent.type} cannot use the grant {grant.name!r}, {way}, which the task requires; those that can: {', '.join(able)}"
            raise Unsupported(msg)
    required = tuple(grant.name for grant in task.grants if grant.required)
    return Reached(tuple(servers), has_command, required, task.mcp_servers, task.skills_dir)


def words_on_tools(task: TaskInput) -> str:
    """Return what an agent is told that calls tools by a command."""
    listed = "\n".join(f"- {tool.name}: {tool.description} {json.dumps(tool.parameters)}" for tool in task.tools)
    return f"Beside your own tools you can call these, from the shell: `gym-tool NAME 'JSON ARGUMENTS'`.\n{listed}"


def activation_of(
    agent: Program,
    prompt: str,
    system_prompt: str | None,
    model: str,
    base_url: str,
    sandbox: SandboxConfig,
    tools: Reached = NO_TOOLS,
    resume: str | None = None,
) -> Activation:
    """Return one input for the harness, with the gateway at `base_url` (its token in the path, without `/v1`).

    With `resume` the harness goes on with that session of its own.
    """
    timeout_s, variables = min(agent.mcp_timeout_s, agent.timeout_s), variables_of(sandbox)
    return Activation(
        prompt=prompt,
        model=model,
        base_url=base_url,
        home=HOME,
        workspace=workspace_of(sandbox),
        variables=variables,
        installed=f"{PLACES}/{agent.type}",
        node=node_binary(f"{PLACES}/node"),
        system_prompt=SystemPrompt(system_prompt, agent.system_prompt_mode) if system_prompt else None,
        withheld=withheld_of(agent),
        config=agent.own_config,
        mcp=(
            *(
                McpServer(name, f"{base_url}/mcp/{name}", timeout_s=timeout_s, required=name in tools.required)
                for name in tools.mcp
            ),
            *(_own(server, timeout_s, variables) for server in tools.servers),
        ),
        tool_command=ToolCommand(f"{base_url}/tools", timeout_s, required=bool(set(tools.required) - set(tools.mcp)))
        if tools.has_command
        else None,
        skills=tools.skills,
        extra_args=agent.extra_args,
        resume=resume,
        context_tokens=agent.context_tokens,
        max_output_tokens=agent.max_output_tokens,
    )


def withheld_of(agent: Program) -> tuple[str, ...]:
    """Return the tools of its own that its model is not offered; raises `Unsupported` if that should be all, and cannot."""
    if agent.enable_tools:
        return agent.withheld_tools
    harness = harness_of(agent)
    if not harness.withholds_all:
        able = sorted(name for name, one in HARNESSES.items() if one.withholds_all)
        msg = f"{agent.type} cannot do without tools of its own (agent.enable_tools=false); those that can: {', '.join(able)}"
        raise Unsupported(msg)
    return tuple(sorted(harness.withholds))


def package_of(agent: Program) -> AgentPackage | None:
    """Return what is installed beside or instead of what is pinned; raises `Unsupported` for a version that it cannot have."""
    if agent.version is None:
        return agent.package if isinstance(agent, AcpAgent) else None
    harness = harness_of(agent)
    if isinstance(agent, AcpAgent) or len(harness.packages) != 1 or harness.needs_python:
        msg = f"{agent.type} cannot be run in another version (agent.version)"
        raise Unsupported(f"{msg}: say agent.package" if isinstance(agent, AcpAgent) else msg)
    (package,) = harness.packages
    if agent.version == package.version:
        return None
    try:
        return AgentPackage(ecosystem=package.ecosystem, name=package.name, version=agent.version)
    except ValidationError as error:
        msg = f"{agent.type} cannot be run in the version {agent.version!r}: want one such as {package.version}"
        raise Unsupported(msg) from error


def _own(server: tasks.McpServer, timeout_s: float, variables: dict[str, str]) -> Server:
    """Return a server that the task brings along."""
    name = normalised(server.name)
    if server.transport == "stdio":
        return LocalServer(name, server.command or "", server.args, timeout_s, variables=variables)
    return McpServer(name, server.url or "", server.headers, timeout_s, slack_s=0.0)


def check(agent: Program, task: TaskInput, sandbox: SandboxConfig) -> None:
    """Raise `Unsupported` for what the harness will not be able to do, before anything is made for it."""
    if not isinstance(sandbox, Bubblewrap | Docker):
        msg = f"{agent.type} cannot run in a sandbox of type {sandbox.type} yet: choose bubblewrap or docker"
        raise Unsupported(msg)
    package_of(agent)
    words, prompts = system_prompt_of(agent, task.messages), map(prompt_of, (task.messages, *task.follow_ups))
    at, tools = "http://127.0.0.1:1", reached(agent, task)
    for prompt in prompts:
        plan_for(harness_of(agent), activation_of(agent, prompt, words, "model", at, sandbox, tools=tools))


def check_continues(agent: Program, wanted: Continuation) -> None:
    """Raise `Unsupported` if the harness cannot go on with its own session when a further input comes, or does not tell all of it."""
    if not harness_of(agent).resumes:
        if isinstance(agent, AcpAgent | PythonAgent):
            msg = "the task has further inputs: set agent.resumes=true if the agent can go on with its session"
            raise Unsupported(msg)
        able = sorted(name for name, harness in HARNESSES.items() if harness.resumes)
        msg = f"{agent.type} cannot go on with its session, and the task has further inputs; those that can: {', '.join(able)}"
        raise Unsupported(msg)
    if missing := sorted(set(wanted.observations) - observed(agent.type)):
        able = sorted(
            name
            for name, harness in HARNESSES.items()
            if harness.resumes and observed(name).issuperset(wanted.observations)
        )
        msg = f"{agent.type} does not tell {', '.join(missing)}, which the task asks for; those that do: {', '.join(able) or 'none'}"
        raise Unsupported(msg)


def roomy(sandbox: SandboxConfig, agent: Program) -> SandboxConfig:
    """Return the sandbox with room for the harness: never less than what was asked for."""
    limits, harness = sandbox.limits, harness_of(agent)
    wanted = limits.replaced(
        memory_mib=max(limits.memory_mib, harness.memory_mib),
        processes=max(limits.processes, harness.processes),
        cpu_s=max(limits.cpu_s, CPU_S),
        file_mib=max(limits.file_mib, FILE_MIB),
    )
    return sandbox.model_copy(update={"limits": wanted})
