"""A folder and an agent's short name on the command line, and the configuration that is written beside the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.collector import plan
from actors.collector.rollout import in_time
from gym_bus.cli.checks import CONFIG, write_config
from gym_bus.cli.eval_run import resolve
from gym_bus.cli.flags import agent_named, flags_of, with_folder
from gym_bus.errors import BadConfig, BadTaskset
from schemas.config import HarborTaskset, OpenAIModel, RunConfig, SimpleAgent
from schemas.harnesses import CodexAgent, NopAgent
from schemas.machines import Machine, Unfit
from schemas.sandboxes import E2B
from schemas.tasks import Task, TaskInput
from schemas.values import Message


def resolved(*words: str, **options: Any) -> RunConfig:
    config, _ = resolve(with_folder({"overrides": words, **options}), {})
    return config


def test_a_folder_stands_among_the_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that is named from here; what stands beside it holds as elsewhere."""
    (tmp_path / "tasks").mkdir()
    monkeypatch.chdir(tmp_path)
    config = resolved("num_repeats=2", "tasks/", "taskset.skip_unsupported=true", agent="codex")
    assert config.taskset == HarborTaskset(path=str(tmp_path / "tasks"), skip_unsupported=True)
    assert (config.agent, config.num_repeats) == (CodexAgent(), 2)


def test_two_folders_and_no_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="both folders of tasks"):
        with_folder({"overrides": (str(tmp_path), "/")})
    with pytest.raises(BadConfig, match="and there is no folder of that name"):
        resolved("nowhere/")
    with pytest.raises(BadConfig, match="names the tasks, and so does a flag"):
        resolved(str(tmp_path), input_path="x.jsonl")


@pytest.mark.parametrize(
    ("name", "type_"),
    [("codex", "codex_agent"), ("codex_agent", "codex_agent"), ("oracle", "oracle_agent"), ("nop", "nop_agent")],
)
def test_agents_have_short_names(name: str, type_: str) -> None:
    assert agent_named(name) == type_


def test_an_agent_that_there_is_not_is_told_which_there_are() -> None:
    for name, meant in (("codx", "codex_agent"), ("terminus2", "terminus_2_agent"), ("simple-agnt", "simple_agent")):
        with pytest.raises(BadConfig, match=rf"no agent is called .{name}.; did you mean {meant}\?$"):
            agent_named(name)
    with pytest.raises(BadConfig, match=r"no agent is called .claude.; did you mean claude_code_agent\?$"):
        agent_named("claude")
    for typed, meant in (("codexagent", "codex_agent"), ("claude", "claude_code_agent"), ("pi", "pi_agent")):
        with pytest.raises(BadConfig, match=rf"agent: no such type '{typed}'; did you mean {meant}\?$"):
            resolved("taskset.path=/tasks", f"agent.type={typed}")
    with pytest.raises(BadConfig, match=r"there are .*codex_agent, .*simple_agent"):
        agent_named("zzz")


@pytest.mark.parametrize(
    ("flags", "overrides", "wanted"),
    [
        ({"agent": "oracle"}, ("agent.type=nop_agent",), "--agent oracle and agent.type=nop_agent"),
        ({"agent": "oracle"}, ("agent=nop",), "--agent oracle and agent=nop"),
        ({"limit": 3}, ("limit=4",), "--limit 3 and limit=4"),
        ({"concurrency": 3}, ("num_samples_in_parallel=4",), "--concurrency 3 and num_samples_in_parallel=4"),
        ({"num_repeats": 3}, ("++num_repeats=4",), "--num-repeats 3 and ++num_repeats=4"),
        ({"top_p": 0.5}, ("responses_create_params.top_p=1",), "--top-p 0.5 and responses_create_params.top_p=1"),
        ({"unsafe_local": True}, ("sandbox.type=docker",), "--unsafe-local and sandbox.type=docker"),
        ({"input_path": "a"}, ("taskset.type=harbor",), "--input a and taskset.type=harbor"),
        ({"input_path": "a"}, ("taskset.jsonl_fpath=b",), "--input a and taskset.jsonl_fpath=b"),
        ({"folder": "a"}, ("taskset.path=b",), "the folder a and taskset.path=b"),
        (
            {"reasoning_gym": ("a", "b")},
            ("taskset.datasets=[{name: c}]",),
            r"--reasoning-gym a --reasoning-gym b and taskset.datasets=\[{name: c}\]",
        ),
        ({"model": "a"}, ("model.policy_model_name=b",), "--model a and model.policy_model_name=b"),
        ({"model_url": ("a",)}, ("model.policy_base_url=b",), "--model-url a and model.policy_base_url=b"),
        ({"model_type": "vllm"}, ("model={type: azure}",), "--model-type vllm and model={type: azure}"),
    ],
)
def test_a_flag_and_an_override_that_contradict_each_other_are_refused(
    flags: dict[str, Any], overrides: tuple[str, ...], wanted: str
) -> None:
    """Whichever was meant; both are named, as they were written."""
    with pytest.raises(BadConfig, match=f"^{wanted.replace('+', '[+]')} say two things: give one of them$"):
        flags_of({**flags, "overrides": overrides})


def test_a_key_that_is_given_twice_is_not_shown() -> None:
    with pytest.raises(BadConfig, match=r"^--model-api-key and model.policy_api_key=… say two things"):
        flags_of({"model_api_key": "secret", "overrides": ("model.policy_api_key=other",)})


def test_a_flag_and_an_override_may_say_the_same() -> None:
    """And an override may say more of what a flag chose."""
    config = resolved(
        "agent.type=codex_agent", "agent.timeout_s=5", "limit=3", "taskset.type=harbor", "taskset.path=/tasks",
        agent="codex", limit=3,
    )  # fmt: skip
    assert (config.agent, config.limit) == (CodexAgent(timeout_s=5), 3)


def test_a_task_says_how_long_unless_the_run_does() -> None:
    assert in_time(SimpleAgent(), 12.0).timeout_s == 12
    assert in_time(SimpleAgent(timeout_s=5), 12.0).timeout_s == 5
    assert in_time(SimpleAgent(), None).timeout_s == 1800


def test_the_configuration_lies_beside_the_results(tmp_path: Path) -> None:
    """It can be given again; the names under which keys are kept are no keys, and are not in it."""
    model = OpenAIModel(policy_base_url="http://m/v1", policy_model_name="m", policy_api_key="kept-name")
    config = RunConfig(
        taskset=HarborTaskset(path="/tasks"), agent=CodexAgent(), model=model, grading_sandbox=E2B(api_key="kept")
    )
    write_config(tmp_path, config)
    text = (tmp_path / CONFIG).read_text()
    assert "kept" not in text
    again = RunConfig.model_validate(yaml.safe_load(text))
    assert again.taskset == config.taskset
    assert again.agent == config.agent
    assert resolved(configs=(tmp_path / CONFIG,)).taskset == config.taskset


def test_a_run_that_was_asked_for_elsewhere_is_refused_too() -> None:
    """The collector itself looks, before there is a plan: not all runs are started by the command line."""
    task = Task(
        index=0,
        input=TaskInput(task_id="t", messages=(Message(role="user", content="Do it."),), hands_in="machine"),
        verifier="harbor",
        verifier_data={},
        machine=Machine(user="77"),
        agents=("pi",),
    )
    config = RunConfig(taskset=HarborTaskset(path="/tasks"), agent=CodexAgent())
    with pytest.raises(BadTaskset, match="t: its dataset allows pi, and not codex_agent"):
        plan.check([task], config)
    with pytest.raises(Unfit, match="the task's user is 77"):
        plan.check([task], config.replaced(agent=NopAgent()))
    plan.check([task.replaced(machine=None)], config.replaced(agent=NopAgent()))
