"""What a run adds to a program's own configuration, and what is none of its business."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.harnesses.asking import activation_of, check, package_of, withheld_of
from adapters.harnesses.base import Activation, SystemPrompt, Unsupported, plan_for
from adapters.harnesses.own_config import is_said, merged
from adapters.harnesses.servers import McpServer
from adapters.harnesses.table import HARNESSES, harness_of
from schemas.config import RunConfig
from schemas.harnesses import (
    AcpAgent,
    AgentPackage,
    CodexAgent,
    HarnessAgent,
    HermesAgent,
    KiloCodeAgent,
    OpenCodeAgent,
    OpenHandsAgent,
    PiAgent,
    PrimeAgent,
    Program,
)
from schemas.sandboxes import Bubblewrap
from schemas.tasks import TaskInput
from schemas.values import Message
from tests.unit.harnesses.test_plans import activation

OURS = {"a": 1, "deep": {"b": 2, "kept": 3}, "models": [{"id": "m", "x": 1}], "plain": [1, 2]}


def test_objects_are_merged_and_all_else_is_replaced() -> None:
    """What is added wins; lists of things with an id are merged by it."""
    theirs = {"deep": {"b": {"c": 4}}, "models": [{"id": "m", "y": 2}, {"id": "n"}], "plain": [3], "new": None}
    assert merged(OURS, theirs, ()) == {
        "a": 1,
        "deep": {"b": {"c": 4}, "kept": 3},
        "models": [{"id": "m", "x": 1, "y": 2}, {"id": "n"}],
        "plain": [3],
        "new": None,
    }
    assert OURS["deep"] == {"b": 2, "kept": 3}, "nothing of ours is changed"


@pytest.mark.parametrize(
    "theirs", [{"deep": {"kept": 1}}, {"deep": {"kept": {"below": 1}}}, {"deep": 3}, {"deep": None}]
)
def test_what_is_kept_cannot_be_said(theirs: dict[str, Any]) -> None:
    """Neither at its place, nor below it, nor instead of what leads there."""
    with pytest.raises(Unsupported, match=r"'deep\.kept'"):
        merged(OURS, theirs, (("deep", "kept"),))
    assert not is_said({"deep": {"other": 1}}, ("deep", "kept"))


def planned(agent: Program, **more: Any) -> Any:
    return plan_for(harness_of(agent), activation(config=agent.own_config, **more))


def file_of(plan: Any, name: str) -> Any:
    return json.loads(next(text for path, text in plan.files.items() if path.endswith(name)))


def test_each_has_its_own_file() -> None:
    """By the names that users know; where the model is stays as it was."""
    deny = {"permission": {"task": "deny"}, "provider": {"gym_bus": {"models": {"some-model": {"interleaved": True}}}}}
    for agent, name in (
        (OpenCodeAgent(opencode_config=deny), "opencode.json"),
        (KiloCodeAgent(kilo_config=deny), "kilo.json"),
    ):
        config = file_of(planned(agent), name)
        assert config["permission"] == {"*": "allow", "task": "deny"}
        assert config["provider"]["gym_bus"]["models"]["some-model"]["interleaved"] is True
        assert config["provider"]["gym_bus"]["options"]["baseURL"].endswith("/v1")
    compat = {"providers": {"gym_bus": {"models": [{"id": "some-model", "compat": {"supportsStore": False}}]}}}
    for agent in (PiAgent(models_config=compat), PrimeAgent(models_config=compat)):
        provider = file_of(planned(agent), "models.json")["providers"]["gym_bus"]
        assert provider["models"][0]["compat"]["supportsStore"] is False
        assert provider["models"][0]["contextWindow"] == 131_072
        assert provider["baseUrl"].endswith("/v1")


def test_codex_is_given_it_by_its_command_line() -> None:
    """Its own flag puts each value where it belongs; they are TOML, whatever they hold."""
    values = {"s": 'a "b"\n', "n": 3, "f": 0.5, "t": True, "l": ["x", 1], "o": [{"k": "v", "w x": False}]}
    plan = planned(CodexAgent(extra_config={"features": {"goals": False}, "tui": {"deep": values}}))
    added = [word for flag, word in zip(plan.argv, plan.argv[1:], strict=False) if flag == "-c"]
    assert "features.goals=false" in added
    read = tomllib.loads("\n".join(added))
    assert read == {"features": {"goals": False}, "tui": {"deep": values}}
    assert plan.argv[-1] == "-"


MCP = {"mcp": {"Task.Tools": {"type": "local", "command": ["x"]}}}
REFUSED: list[tuple[Program, str]] = [
    (OpenCodeAgent(opencode_config={"model": "other/x"}), "'model'"),
    (
        OpenCodeAgent(opencode_config={"provider": {"gym_bus": {"options": {"baseURL": "http://x"}}}}),
        r"provider\.gym_bus\.options",
    ),
    (OpenCodeAgent(opencode_config=MCP), r"mcp\.Task\.Tools"),
    (KiloCodeAgent(kilo_config={"enabled_providers": []}), "enabled_providers"),
    (OpenCodeAgent(opencode_config={"agent": {"build": {"model": "x/y"}}}), r"agent\.\*\.model"),
    (OpenCodeAgent(opencode_config={"mode": {"build": {"model": "x/y"}}}), r"mode\.\*\.model"),
    (OpenCodeAgent(opencode_config={"provider": {"gym_bus": {"api": "http://x"}}}), "api"),
    (OpenCodeAgent(opencode_config={"provider": {"gym_bus": {"models": {"m": {"provider": {}}}}}}), "provider"),
    (PiAgent(models_config={"providers": {"gym_bus": {"models": [{"id": "some-model", "baseUrl": "x"}]}}}), "baseUrl"),
    (PrimeAgent(models_config={"providers": {"gym_bus": {"models": [{"id": 3, "api": "x"}]}}}), "api"),
    (PiAgent(models_config={"providers": {"gym_bus": {"baseUrl": "http://x"}}}), "baseUrl"),
    (PrimeAgent(models_config={"providers": []}), "baseUrl"),
    (CodexAgent(extra_config={"model_providers": {"gym_bus": {"base_url": "http://x"}}}), "model_providers"),
    (CodexAgent(extra_config={"mcp_servers": {"task_tools": {"url": "http://x"}}}), r"mcp_servers\.task_tools"),
    (CodexAgent(extra_config={"a.b": 1}), r"the key 'a\.b'"),
    (CodexAgent(extra_config={"a": None}), "null"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_where_the_model_is_and_the_tasks_tools_are_is_not_its_to_say(case: int) -> None:
    agent, why = REFUSED[case]
    server = (McpServer("task_tools", "http://127.0.0.1:1"),) if "mcp" in harness_of(agent).grants else ()
    with pytest.raises(Unsupported, match=why):
        planned(agent, mcp=server)


TOOLS_UNDONE: list[Program] = [
    CodexAgent(extra_config={"features": {"shell_tool": True}}),
    *(
        OpenCodeAgent(opencode_config=config)
        for config in (
            {"permission": "allow"},
            {"permission": {"ba*": "allow"}},
            {"tools": {"bash": True}},
            {"agent": {"build": {"permission": {"bash": "allow"}}}},
            {"mode": {"build": {"tools": {"bash": True}}}},
        )
    ),
]


@pytest.mark.parametrize("case", range(len(TOOLS_UNDONE)))
def test_tools_that_the_run_withholds_stay_withheld(case: int) -> None:
    """However it is said; a run that withholds none says what it likes of them."""
    agent = TOOLS_UNDONE[case]
    planned(agent)
    tool = "exec_command" if isinstance(agent, CodexAgent) else "bash"
    with pytest.raises(Unsupported, match="is the run's"):
        planned(agent, withheld=(tool,))


WORDS_UNDONE: list[Program] = [
    CodexAgent(extra_config={"developer_instructions": "Mine."}),
    CodexAgent(extra_config={"model_instructions_file": "/x"}),
    OpenCodeAgent(opencode_config={"agent": {"build": {"prompt": "Mine."}}}),
    OpenCodeAgent(opencode_config={"mode": {"build": {"prompt": "Mine."}}}),
    OpenCodeAgent(opencode_config={"default_agent": "mine"}),
    KiloCodeAgent(kilo_config={"agent": {"code": {"prompt": "Mine."}}}),
]


@pytest.mark.parametrize("case", range(len(WORDS_UNDONE)))
def test_words_of_the_run_and_the_task_stand(case: int) -> None:
    """A task's system messages are not lost to an addition; where there are none it says what it likes."""
    agent = WORDS_UNDONE[case]
    planned(agent)
    with pytest.raises(Unsupported, match="is the run's"):
        planned(agent, system_prompt=SystemPrompt("Be brief.", "replace"))


@pytest.mark.parametrize("mcp", [[], None, 3, {"task_tools": None}, {"TASK-TOOLS": {}}])
def test_the_tasks_servers_cannot_be_taken_away(mcp: Any) -> None:
    with pytest.raises(Unsupported, match="mcp"):
        planned(OpenCodeAgent(opencode_config={"mcp": mcp}), mcp=(McpServer("task_tools", "http://127.0.0.1:1"),))


def test_any_key_and_any_place_of_a_list() -> None:
    assert is_said({"models": [{}, {"id": 3, "baseUrl": "x"}]}, ("models", "*", "baseUrl"))
    assert is_said({"models": ["x"]}, ("models", "*", "baseUrl"))
    assert is_said({"models": "x"}, ("models", "*", "baseUrl"))
    assert not is_said({"models": [{"id": "m"}]}, ("models", "*", "baseUrl"))
    assert not is_said({"models": {}}, ("models", "*", "baseUrl"))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**63, -(2**63) - 1])
def test_codex_reads_whole_numbers_of_64_bits(number: int) -> None:
    """A longer one would be read as a text."""
    agent = CodexAgent(extra_config={"a": [{"b": number}]})
    if number.bit_length() < 64 or number == -(2**63):
        assert f'a=[{{"b" = {number}}}]' in planned(agent).argv
    else:
        with pytest.raises(Unsupported, match="64 bits"):
            planned(agent)


@pytest.mark.parametrize("version", ["1", "0.170", "1.x", "1.0.x", "1-!_+", "01.2.3.4"])
def test_a_version_of_npm_is_exact(version: str) -> None:
    """Others are whatever fits on the day they are installed."""
    with pytest.raises(Unsupported, match="want one such as"):
        package_of(CodexAgent(version=version))
    with pytest.raises(ValidationError, match="no exact version"):
        AgentPackage(ecosystem="npm", name="x", version=version)
    assert AgentPackage(ecosystem="pypi", name="x", version=version).version == version


def test_none_of_its_own_tools() -> None:
    """All of them are withheld; what cannot do so says who can, before anything is made."""
    for name in ("pi_agent", "opencode_agent", "claude_code_agent"):
        agent = RunConfig.model_validate(
            {"taskset": {"type": "jsonl", "jsonl_fpath": "x"}, "agent": {"type": name, "enable_tools": False}}
        ).agent
        assert isinstance(agent, HarnessAgent)
        assert set(withheld_of(agent)) == HARNESSES[name].withholds  # type: ignore[arg-type]
    task = TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),))
    with pytest.raises(Unsupported, match=r"codex_agent cannot do without tools of its own.*claude_code_agent"):
        check(CodexAgent(enable_tools=False), task, Bubblewrap())
    at: Activation = activation_of(PiAgent(enable_tools=False), "p", None, "m", "http://h", Bubblewrap())
    assert set(at.withheld) == HARNESSES["pi_agent"].withholds


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        (
            CodexAgent(withheld_tools=("shel",)),
            "codex_agent has no tool 'shel' that can be withheld; those that can: create_goal, exec_command, get_goal, write_stdin",
        ),
        (
            HermesAgent(withheld_tools=("a", "b")),
            "hermes_agent has no tool 'a' or 'b' that can be withheld; those that can: none",
        ),
    ],
)
def test_a_tool_that_cannot_be_withheld_is_told_with_those_that_can(agent: HarnessAgent, said: str) -> None:
    task = TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),))
    with pytest.raises(Unsupported, match=f"^{said}$"):
        check(agent, task, Bubblewrap())


def test_another_version_takes_the_place_of_the_pinned_one() -> None:
    """The one that is pinned stays pinned, with its lock."""
    assert package_of(CodexAgent(version="0.170.0")) == AgentPackage(
        ecosystem="npm", name="@openai/codex", version="0.170.0"
    )
    assert package_of(CodexAgent()) is None
    assert package_of(CodexAgent(version=HARNESSES["codex_agent"].packages[0].version)) is None
    for agent in (PrimeAgent(version="1.0"), OpenHandsAgent(version="1.0"), AcpAgent(command=("x",), version="1.0")):
        with pytest.raises(Unsupported, match="another version"):
            package_of(agent)


def test_others_words_for_the_same() -> None:
    """`timeout` is `timeout_s`; both are one too many."""
    assert CodexAgent.model_validate({"timeout": 60, "mcp_timeout": 20}) == CodexAgent(timeout_s=60, mcp_timeout_s=20)
    with pytest.raises(ValidationError, match="timeout and timeout_s say the same"):
        CodexAgent.model_validate({"timeout": 60, "timeout_s": 60})
