"""Tasks of Reasoning Gym, and their grading by the generator that made them.

An entry goes to the verifier as data if it survives JSON, because some generators make other entries in another process
(they iterate over sets); else the grader makes it again and checks that the question is the same.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, Final, Protocol, cast

from adapters.benchmarks.answers import INSTRUCTION, shown, tagged_answer
from adapters.benchmarks.base import Grade
from adapters.benchmarks.lazy_import import lazily
from adapters.benchmarks.portable import pack, unpack
from gym_bus.errors import BadTaskset
from schemas.config import ReasoningGymDataset, ReasoningGymTaskset
from schemas.tasks import Evidence, Task, TaskInput
from schemas.values import Message

VERIFIER: Final = "reasoning_gym"
DIGEST_LENGTH: Final = 8
FULL_REWARD: Final = 1.0


class Generator(Protocol):
    """What we use of Reasoning Gym's `ProceduralDataset`."""

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Make entry `idx`."""
        ...

    def score_answer(self, answer: str | None, entry: dict[str, Any]) -> float:
        """Return the reward of `answer`."""
        ...


def load(config: ReasoningGymTaskset) -> list[Task]:
    """Return the tasks of every dataset, one after the other; raises `BadTaskset`."""
    tasks: list[Task] = []
    seen: set[str] = set()
    for dataset in config.datasets:
        group = _group(dataset)
        if group in seen:
            raise BadTaskset(f"taskset: {group} is listed twice; give one of them another seed")
        seen.add(group)
        generator = _generator(dataset)
        tasks += [_task(generator, dataset, group, place, len(tasks) + place) for place in range(dataset.size)]
    return tasks


def grade(verifier_data: Mapping[str, Any], evidence: Evidence) -> Grade:
    """Return the generator's own score of the answer in the last pair of tags; without tags there is no answer."""
    dataset = ReasoningGymDataset.model_validate(verifier_data["dataset"])
    generator = _cached_generator(dataset.model_dump_json())
    entry = _entry(generator, verifier_data)
    expected, got = entry.get("answer"), tagged_answer(evidence.answer)
    try:
        reward = float(generator.score_answer(got, entry))
    except Exception as error:  # noqa: BLE001  foreign code choking on the model's text: that is the text's fault
        return Grade(0.0, failure_reason=f"the scorer cannot read {shown(got)}: {type(error).__name__}: {shown(error)}")
    if not math.isfinite(reward):
        return Grade(0.0, failure_reason=f"the scorer gave {reward} for {shown(got)}")
    if reward >= FULL_REWARD:
        return Grade(reward)
    if got is None:
        return Grade(reward, failure_reason=f"expected {shown(expected)}, got no <answer> tags")
    return Grade(reward, failure_reason=f"expected {shown(expected)}, got {shown(got)}")


def _group(dataset: ReasoningGymDataset) -> str:
    """Return what the ids of a dataset's tasks begin with."""
    options = json.dumps(dataset.config, sort_keys=True, default=str)
    suffix = f"-{hashlib.sha256(options.encode()).hexdigest()[:DIGEST_LENGTH]}" if dataset.config else ""
    return f"reasoning_gym/{dataset.name}{suffix}/{dataset.seed}"


def library() -> ModuleType:
    """Import Reasoning Gym, which takes a second or two; raises `BadTaskset` if it is not installed."""
    try:
        with lazily("cellpylib"):  # for one generator, and with it comes all of matplotlib
            import reasoning_gym  # noqa: PLC0415  not before it is needed
    except ImportError as error:
        raise BadTaskset("taskset: reasoning_gym is not installed: `pip install 'gym-bus[tasks]'`") from error
    return cast("ModuleType", reasoning_gym)


def _generator(dataset: ReasoningGymDataset) -> Generator:
    reasoning_gym = library()
    from reasoning_gym.factory import DATASETS  # noqa: PLC0415  there once the library is

    if dataset.name not in DATASETS:
        near = difflib.get_close_matches(dataset.name, DATASETS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {len(DATASETS)}, e.g. chain_sum"
        raise BadTaskset(f"taskset: Reasoning Gym has no generator {dataset.name!r}; {hint}")
    if taken := sorted({"seed", "size"} & set(dataset.config)):
        raise BadTaskset(f"taskset: {dataset.name}: {taken[0]} stands beside `config`, not in it")
    try:
        made = reasoning_gym.create_dataset(dataset.name, seed=dataset.seed, size=dataset.size, **dataset.config)
    except Exception as error:  # generators check their options with assert, ValueError, TypeError and more
        raise BadTaskset(f"taskset: {dataset.name}: bad options {dataset.config}: {error}") from error
    return cast("Generator", made)


@lru_cache(maxsize=64)
def _cached_generator(dataset: str) -> Generator:
    return _generator(ReasoningGymDataset.model_validate_json(dataset))


def _task(generator: Generator, dataset: ReasoningGymDataset, group: str, place: int, index: int) -> Task:
    task_id = f"{group}/{place}"
    try:
        entry = generator[place]
    except Exception as error:
        raise BadTaskset(f"taskset: {task_id} cannot be made: {type(error).__name__}: {error}") from error
    question = str(entry["question"])
    content = f"{question}\n\n{INSTRUCTION}"
    data: dict[str, Any] = {
        "dataset": dataset.model_dump(mode="json"),
        "place": place,
        "question_sha256": _digest(question),
        "entry": _packed(entry),
    }
    messages = (Message(role="user", content=content),)
    return Task(index=index, input=TaskInput(task_id=task_id, messages=messages), verifier=VERIFIER, verifier_data=data)


def _packed(entry: dict[str, Any]) -> Any:
    try:
        packed = pack(entry)
        json.dumps(packed, allow_nan=False).encode()
    except (TypeError, ValueError):
        return None
    return packed


def _entry(generator: Generator, verifier_data: Mapping[str, Any]) -> dict[str, Any]:
    if verifier_data.get("entry") is not None:
        return cast("dict[str, Any]", unpack(verifier_data["entry"]))
    entry = generator[int(verifier_data["place"])]
    if _digest(str(entry["question"])) != verifier_data["question_sha256"]:
        raise BadTaskset(
            "the generator makes another question now: Reasoning Gym's version differs, or it is not deterministic"
        )
    return entry


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode(errors="replace")).hexdigest()[:16]
