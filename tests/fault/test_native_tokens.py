"""Token ids of agents whose loop is ours: in the log as what each call adds, whoever dies between two calls."""

from __future__ import annotations

import asyncio

import pytest

from actors.token_chains import TokenChains
from providers.models.base import ModelAnswer, ModelCall
from providers.models.evidence import TokenEvidence
from schemas.events import ModelCallCompleted, ModelCallRequested
from tests.support.fake_model import FakeModel, calls_tools, says, with_model
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at

TURNS = 4


def _ids(call: ModelCall) -> TokenEvidence:
    """Return a prompt of ten ids a message, and two that are generated."""
    prompt = tuple(1_000 * n + i for n in range(len(call.messages)) for i in range(10))
    of_answers = [n for n, m in enumerate(call.messages) if m.role == "assistant"]
    prompt = tuple(i for i in prompt if i // 1_000 not in of_answers or i % 1_000 < 2)
    here = 1_000 * len(call.messages)
    return TokenEvidence(prompt, (here, here + 1), (-0.5, -1.0), "raw", ("step-1",))


@pytest.mark.parametrize("nth", [0, 5, 12, 20])
def test_the_tokens_of_a_loop_are_one_chain(nth: int) -> None:
    """Every prompt begins with all of the one before and what was answered; a new owner reads the chain from the log."""

    async def scenario() -> None:
        world = World(tasks=1)
        loop = asyncio.get_running_loop()

        def answer(call: ModelCall) -> ModelAnswer:
            plain = says("<answer>1</answer>") if call.turn == TURNS else calls_tools('{"command": "echo 1"}')
            return ModelAnswer(plain.message, plain.stop_reason, plain.usage, tokens=_ids(call))

        def come_back(host: SimHost) -> None:
            loop.call_later(0.3, lambda: world.start_host(host.host_id, host.kinds))

        with_model(world, FakeModel(answer))
        if nth:
            kill_at(world, [("harness.fact_received", nth % 4 + 1), ("model.appended", 2)], come_back)
        world.start_host()
        await world.request_run("r1", config())
        await world.finished("r1")
        chains = TokenChains()
        last = max(e.attempt for e in world.events())  # a box may have died with its host
        done = [e.data for e in world.events() if isinstance(e.data, ModelCallCompleted) and e.attempt == last]
        assert len(done) == TURNS
        previous: list[int] = []
        asked = {e.event_id for e in world.events(ModelCallRequested)}
        for data in done:
            assert data.tokens is not None
            assert data.untrainable is None
            assert data.policy_versions == ("step-1",)
            assert data.request_id in asked
            chains.answer(data.request_id, data.tokens)
            whole = list(chains.whole(data.request_id))
            assert whole[: len(previous)] == previous
            assert data.tokens.shared == len(previous)
            previous = whole

    run_virtual(scenario())
