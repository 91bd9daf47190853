"""What the files of a reward say, and what is no reward."""

from __future__ import annotations

from typing import Any

import pytest

from actors.verifier import tests_run
from adapters.benchmarks.base import Grade
from adapters.benchmarks.harbor.rewards import BadReward, reward_of
from schemas.events import GradingDone, VerdictRequested
from schemas.tasks import Evidence
from schemas.values import Failure


@pytest.mark.parametrize(
    ("files", "reward", "components"),
    [
        ({"reward.txt": "1\n"}, 1.0, {}),
        ({"reward.txt": " -0.25 "}, -0.25, {}),
        ({"reward.txt": "+.5e0"}, 0.5, {}),
        ({"reward.txt": "1."}, 1.0, {}),
        ({"reward.json": '{"reward": 0.5, "speed": 3}'}, 0.5, {"reward": 0.5, "speed": 3.0}),
        ({"reward.json": '{"accuracy": 0.75}'}, 0.75, {"accuracy": 0.75}),
        ({"reward.json": '{"reward": 1}', "reward.txt": "1.0"}, 1.0, {"reward": 1.0}),
    ],
)
def test_a_number_or_an_object_of_numbers(files: dict[str, str], reward: float, components: dict[str, float]) -> None:
    grade = reward_of(files)
    assert (grade.reward, dict(grade.components)) == (reward, components)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "neither reward.txt nor reward.json"),
        ({"reward.txt": ""}, "'' is no number"),
        ({"reward.txt": "nan"}, "no number"),
        ({"reward.txt": "inf"}, "no number"),
        ({"reward.txt": "1 1"}, "no number"),
        ({"reward.txt": "1_0"}, "no number"),
        ({"reward.txt": "\u0661"}, "no number"),
        ({"reward.txt": "9" * 1000}, "no number"),
        ({"reward.json": '{"reward": "1"}'}, "reward.json: reward: '1' is a text, and no number"),
        ({"reward.json": '{"reward": 1, "speed": "3"}'}, "reward.json: speed: '3' is a text"),
        ({"reward.json": '{"reward": 0, "reward": 1}'}, "a key twice"),
        ({"reward.json": '{"reward": 1, "\\ud800": 1}'}, "a key holds half of a surrogate pair"),
        ({"reward.json": '{"\\udc80": "1"}'}, r"or a NUL: '.udc80'"),
        ({"reward.json": '{"a\\u0000b": 1}'}, r"or a NUL: 'a.x00b'"),
        ({"reward.json": "1"}, "has to be an object"),
        ({"reward.json": "{}"}, "has to be an object"),
        ({"reward.json": '{"reward": true}'}, "no number"),
        ({"reward.json": '{"reward": NaN}'}, "no number"),
        ({"reward.json": '{"reward": [1]}'}, "no number"),
        ({"reward.json": '{"reward": 1e999}'}, "no number"),
        ({"reward.json": "[" * 100_000}, "no JSON"),
        ({"reward.json": '{"a": 1, "b": 0}'}, "none of them is called 'reward'"),
        ({"reward.json": '{"reward": 1}', "reward.txt": "0"}, "reward.json says 1, and reward.txt says 0"),
    ],
)
def test_what_is_no_reward(files: dict[str, str], words: str) -> None:
    with pytest.raises(BadReward, match=words):
        reward_of(files)


REQUEST = VerdictRequested(
    verifier="harbor",
    verifier_data={"rewards_in": "/logs/verifier"},
    evidence=Evidence(answer="", stop_reason="exit:0", turns=0),
)


def worth(stop_reason: str = "exit:0", /, **said: Any) -> Grade | Failure:
    values = {"request_id": "q", "exit_code": 0, "output": "it said so", **said}
    request = REQUEST.replaced(evidence=REQUEST.evidence.replaced(stop_reason=stop_reason))
    return tests_run.worth(request, GradingDone(**values))


def test_what_explains_a_reward_that_is_not_full_comes_first() -> None:
    """A solution that failed and artifacts that are not there; a full reward needs no explanation."""
    why = "the solution failed (exit 3); artifacts that are not there: a.txt, out; the tests ended with 1: it said so"
    missing: dict[str, Any] = {"missing": ("a.txt", "out"), "exit_code": 1}
    assert worth("exit:3", rewards={"reward.txt": "0"}, **missing) == Grade(0.0, failure_reason=why)
    assert worth("exit:3", rewards={"reward.txt": "1"}, **missing) == Grade(1.0)
    failed = worth("exit:3", **missing)
    assert isinstance(failed, Failure)
    assert failed.message.endswith(why)
    for ended in ("exit:0", "stop", "budget:model_calls"):
        assert worth(ended, rewards={"reward.txt": "0"}) == Grade(
            0.0, failure_reason="the tests ended with 0: it said so"
        )


def test_the_reward_counts_and_the_exit_code_does_not() -> None:
    assert worth(rewards={"reward.txt": "1"}, exit_code=9) == Grade(1.0)
    half = worth(rewards={"reward.json": '{"reward": 0.5}'})
    assert half == Grade(0.5, {"reward": 0.5}, "the tests ended with 0: it said so")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({}, "reward_missing"),
        ({"rewards": {"reward.txt": "much"}}, "reward_invalid"),
        ({"rewards": {"reward.txt": "1"}, "rewards_changed": True}, "reward_invalid"),
        ({"rewards": {"reward.txt": "1"}, "ended_by": "timeout", "exit_code": None}, "verifier_error"),
        ({"rewards": {"reward.txt": "1"}, "ended_by": "signal", "exit_code": 137}, "verifier_error"),
        ({"rewards": {"reward.txt": "1"}, "ended_by": "out_of_memory"}, "verifier_error"),
    ],
)
def test_without_a_reward_of_the_tests_there_is_none_not_zero(said: dict[str, Any], kind: str) -> None:
    failure = worth(**said)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == (kind, "verification")


def test_what_may_not_be_handed_in_is_worth_nothing() -> None:
    assert worth(refused="too many files") == Grade(0.0, failure_reason="too many files")
