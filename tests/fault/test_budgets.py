"""Budgets of rollouts and of whole runs, for agents whose loop is ours: never a failure of the machine, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from providers.models.base import ModelAnswer, ModelCall
from schemas.config import Budget, Budgets, OpenAIModel, Prices, ScriptedModel
from schemas.events import (
    BudgetExhausted,
    ModelCallCompleted,
    ModelCallRequested,
    RolloutFinished,
    RunFinished,
    SessionClosed,
)
from schemas.sandboxes import Inline
from tests.support.checks import check_log, final_table
from tests.support.fake_model import FakeModel, calls_tools, says, settled, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at


def test_a_rollouts_budget_ends_it_and_it_is_graded() -> None:
    """After two calls there is no third; what there is goes to the verifier, and the reason is in the evidence."""

    async def scenario() -> None:
        world = World(tasks=3)
        with_model(world, FakeModel(lambda _: calls_tools('{"command": "echo $((1+1))"}')))
        world.start_host()
        await world.request_run("r1", config(budget=Budgets(rollout=Budget(model_calls=2))))
        finished = await world.finished("r1")
        await settled(world)
        assert (finished.state, finished.scored, finished.failed, finished.missing) == ("completed", 3, 0, 0)
        assert len(world.events(ModelCallRequested)) == 6
        reasons = [e.data.evidence.stop_reason for e in world.events() if isinstance(e.data, SessionClosed)]
        assert reasons == ["budget:model_calls"] * 3
        answers = [e.data.evidence.answer for e in world.events() if isinstance(e.data, SessionClosed)]
        assert answers == [None] * 3, "a tool's output is no answer"
        assert {e.data.state for e in world.events() if isinstance(e.data, RolloutFinished)} == {"model_final"}

    run_virtual(scenario())


@pytest.mark.parametrize(
    ("budget", "limit"), [(Budget(output_tokens=25), "output_tokens"), (Budget(wall_s=3), "wall_s")]
)
def test_tokens_and_time_are_limits_too(budget: Budget, limit: str) -> None:
    """Ten tokens and a second a call."""

    async def scenario() -> None:
        world = World(tasks=1)

        def answer(_: ModelCall) -> ModelAnswer:
            return calls_tools('{"command": "echo 1"}', tokens=10)

        with_model(world, FakeModel(answer)).delay_s = 1
        world.start_host()
        await world.request_run("r1", config(budget=Budgets(rollout=budget)))
        await world.finished("r1")
        (fact,) = [e.data for e in world.events() if isinstance(e.data, BudgetExhausted)]
        assert fact.limit == limit
        assert len(world.events(ModelCallCompleted)) == 3

    run_virtual(scenario())


def test_a_runs_budget_ends_the_run() -> None:
    """What is under way finishes its call; what was graded stays; everything else is missing, and nothing counts as failed."""

    async def scenario() -> None:
        world = World(tasks=40)

        def answer(call: ModelCall) -> ModelAnswer:
            return (
                says("<answer>1</answer>", tokens=10)
                if call.turn > 1
                else calls_tools('{"command": "echo 1"}', tokens=10)
            )

        with_model(world, FakeModel(answer)).delay_s = 1
        world.start_host()
        model = OpenAIModel(policy_base_url="http://m/v1", policy_model_name="m", prices=Prices(input=0, output=1))
        await world.request_run("r1", config(model=model, budget=Budgets(run=Budget(cost_usd=0.0004))))
        finished = await world.finished("r1")
        await settled(world)
        assert finished.state == "cancelled"
        assert finished.failure is not None
        assert finished.failure.kind == "budget_exhausted"
        assert "0.0004 cost_usd" in finished.failure.message
        assert finished.failed == finished.masked == 0
        assert finished.scored + finished.missing == 40
        assert 8 <= finished.scored < 40
        answered = len(world.events(ModelCallCompleted))
        assert len(world.events(ModelCallRequested)) == answered
        assert 40 <= answered <= 40 + 8, "the calls under way when the fortieth was answered, and none more"

    run_virtual(scenario())


def test_a_runs_budget_of_calls_is_never_passed() -> None:
    """Sixty-four rollouts at once, each with two calls to make: seven calls are made, by however many."""

    async def scenario() -> None:
        world = World(tasks=64)

        def answer(call: ModelCall) -> ModelAnswer:
            return says("<answer>1</answer>") if call.turn > 1 else calls_tools('{"command": "echo 1"}')

        with_model(world, FakeModel(answer)).delay_s = 0.01
        world.start_host()
        parallel = config(num_samples_in_parallel=64, budget=Budgets(run=Budget(model_calls=7)))
        await world.request_run("r1", parallel)
        finished = await world.finished("r1")
        await settled(world)
        assert finished.state == "cancelled"
        assert len(world.events(ModelCallRequested)) == 7

    run_virtual(scenario())


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("name", ["model.before_append", "model.appended", "model.effect_done", "harness.appended"])
def test_a_budget_survives_its_worker(name: str, nth: int, tmp_path: Path) -> None:
    """Killed wherever it is: the same end as without a kill, and not one call more than is allowed."""

    async def scenario() -> None:
        world = World(tasks=4)
        loop = asyncio.get_running_loop()

        def come_back(host: SimHost) -> None:
            loop.call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        kill_at(world, [(name, nth)], come_back)
        world.start_host()
        model = ScriptedModel(error_rate=0, ledger_path=str(tmp_path / "ledger"))
        await world.request_run(
            "r1", config(model=model, sandbox=Inline(), budget=Budgets(rollout=Budget(model_calls=1)))
        )
        finished = await world.finished("r1", 300)
        await world.quiet(100)
        await world.stop()
        assert isinstance(finished, RunFinished)
        check_log(world.events())
        assert (finished.scored, finished.failed, finished.missing) == (4, 0, 0)
        assert {state for state, _ in final_table(world.events()).values()} == {"model_final"}
        assert len(world.events(ModelCallCompleted)) == 4
        assert len(world.events(BudgetExhausted)) == 4

    run_virtual(scenario())
