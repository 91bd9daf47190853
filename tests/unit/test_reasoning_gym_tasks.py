"""Reasoning Gym's tasks keep their names, and are graded by their own generators in any process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from adapters.benchmarks import load_tasks
from adapters.benchmarks.portable import pack, unpack
from adapters.benchmarks.reasoning_gym_tasks import grade
from gym_bus.errors import BadTaskset
from schemas.config import ReasoningGymDataset, ReasoningGymTaskset
from schemas.tasks import Evidence, Task

reasoning_gym = pytest.importorskip("reasoning_gym")


def tasks_of(*datasets: ReasoningGymDataset) -> list[Task]:
    return load_tasks(ReasoningGymTaskset(datasets=datasets))


def graded(task: Task, answer: str | None, **changes: Any) -> tuple[float, str | None]:
    data = json.loads(json.dumps({**task.verifier_data, **changes}))
    result = grade(data, Evidence(answer=answer, stop_reason="stop", turns=1))
    return result.reward, result.failure_reason


def test_tasks_of_all_datasets_are_numbered_through() -> None:
    tasks = tasks_of(
        ReasoningGymDataset(name="chain_sum", size=2, seed=7),
        ReasoningGymDataset(name="chain_sum", size=2, seed=7, config={"max_terms": 3}),
        ReasoningGymDataset(name="products", size=1),
    )
    assert [task.index for task in tasks] == [0, 1, 2, 3, 4]
    ids = [task.task_id for task in tasks]
    assert ids[:2] == ["reasoning_gym/chain_sum/7/0", "reasoning_gym/chain_sum/7/1"]
    assert ids[2].startswith("reasoning_gym/chain_sum-")
    assert ids[4] == "reasoning_gym/products/42/0"
    assert len(set(ids)) == 5


def test_the_prompt_holds_question_and_instruction_but_not_the_answer() -> None:
    (task,) = tasks_of(ReasoningGymDataset(name="products", size=1, seed=1))
    (message,) = task.input.messages
    entry = unpack(task.verifier_data["entry"])
    assert message.content == f"{entry['question']}\n\nGive your final answer between <answer> and </answer> tags."
    assert entry["answer"] not in (message.content or "")


@pytest.mark.parametrize(
    "name", ["chain_sum", "countdown", "rotate_matrix", "complex_arithmetic", "knights_knaves", "word_ladder"]
)
@pytest.mark.parametrize("changes", [{}, {"entry": None}], ids=["from data", "made again"])
def test_the_own_answer_has_the_full_reward(name: str, changes: dict[str, Any]) -> None:
    (task,) = tasks_of(ReasoningGymDataset(name=name, size=1, seed=5))
    answer = reasoning_gym.create_dataset(name, size=1, seed=5)[0]["answer"]
    assert graded(task, f"so <answer>wrong</answer> no, <answer> {answer} </answer>", **changes) == (1.0, None)


def test_a_wrong_answer_is_told_from_none() -> None:
    (task,) = tasks_of(ReasoningGymDataset(name="chain_sum", size=1, seed=5))
    expected = unpack(task.verifier_data["entry"])["answer"]
    for answer, said in [
        (f"<answer>{int(expected) + 1}</answer>", f"'{int(expected) + 1}'"),
        (expected, "no <answer>"),
        (None, "no <answer>"),
    ]:
        reward, reason = graded(task, answer)
        assert reward < 1
        assert reason is not None
        assert f"'{expected}'" in reason
        assert said in reason


def test_another_question_is_not_graded() -> None:
    (task,) = tasks_of(ReasoningGymDataset(name="chain_sum", size=1, seed=5))
    with pytest.raises(BadTaskset, match="another question"):
        graded(task, "<answer>1</answer>", entry=None, question_sha256="0" * 16)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (ReasoningGymDataset(name="chainsum"), "did you mean chain_sum"),
        (ReasoningGymDataset(name="qqqqqq"), "no generator 'qqqqqq'"),
        (ReasoningGymDataset(name="chain_sum", config={"no_such": 1}), "no_such"),
        (ReasoningGymDataset(name="chain_sum", config={"min_terms": 9, "max_terms": 2}), "bad options"),
        (ReasoningGymDataset(name="chain_sum", config={"seed": 2}), "seed"),
    ],
)
def test_bad_datasets_are_named(dataset: ReasoningGymDataset, said: str) -> None:
    with pytest.raises(BadTaskset, match=said):
        tasks_of(dataset)


def test_equal_datasets_and_no_datasets_are_refused() -> None:
    with pytest.raises(BadTaskset, match="twice"):
        tasks_of(ReasoningGymDataset(name="chain_sum"), ReasoningGymDataset(name="chain_sum", size=3))
    with pytest.raises(BadTaskset, match="no tasks"):
        tasks_of()


@pytest.mark.parametrize(
    "value", [{"a": (1, [2, (3,)]), "b": {1: "x", (2, 3): None}}, [1.5, True, "é"], {"\x00tuple": []}, {}]
)
def test_packed_values_survive_json(value: object) -> None:
    assert unpack(json.loads(json.dumps(pack(value)))) == value
    assert type(unpack(pack((1,)))) is tuple


def test_what_is_no_data_is_not_packed() -> None:
    with pytest.raises(TypeError, match="set"):
        pack({"a": {1, 2}})
