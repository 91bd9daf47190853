"""Budgets at the gateway: what is under way finishes, the next call is refused in the client's dialect, and the log says why."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import JSONResponse

from schemas.config import Budget, Budgets, Prices
from schemas.conversation import DialectName
from schemas.events import BudgetExhausted, ModelCallCompleted, ModelCallRequested
from tests.support.gateway_calls import NAMES, message_of, post, words
from tests.support.gateway_place import GatewayPlace, gateway_place, open_session


def stated(place: GatewayPlace) -> list[BudgetExhausted]:
    return [e.data for e in place.events(BudgetExhausted) if isinstance(e.data, BudgetExhausted)]


@pytest.mark.parametrize("client", NAMES)
async def test_the_next_call_is_refused(client: DialectName) -> None:
    """Two calls are allowed, the third is a 400 that no SDK tries again; it is stated once, however often it is tried."""
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=2))) as place:
        place.upstream.answers = [words()]
        assert [(await post(place, client)).status_code for _ in range(2)] == [200, 200]
        for streamed in (False, True):
            refused = await post(place, client, stream=streamed)
            assert refused.status_code == 400
            assert "2 of 2 model_calls" in message_of(client, refused)
        assert stated(place) == [BudgetExhausted(scope="rollout", limit="model_calls", allowed=2, used=2)]
        assert len(place.events(ModelCallRequested)) == len(place.upstream.bodies) == 2


@pytest.mark.parametrize(
    ("budget", "limit", "used"),
    [
        (Budget(input_tokens=5), "input_tokens", 6),
        (Budget(output_tokens=4), "output_tokens", 4),
        (Budget(total_tokens=10), "total_tokens", 10),
        (Budget(cost_usd=0.00002), "cost_usd", 0.000024),
        (Budget(wall_s=1e-6), "wall_s", None),
        (Budget(model_calls=0), "model_calls", 0),
    ],
)
async def test_every_limit_ends_it(budget: Budget, limit: str, used: float | None) -> None:
    """Calls of 3 tokens in, 2 out, at 2 and 3 dollars a million."""
    async with gateway_place(budget=Budgets(rollout=budget), prices=Prices(input=2, output=3)) as place:
        place.upstream.answers = [words()]
        codes = [(await post(place)).status_code for _ in range(4)]
        assert codes == sorted(codes)
        assert codes[-1] == 400
        (fact,) = stated(place)
        assert fact.limit == limit
        assert used is None or fact.used == pytest.approx(used)


async def test_calls_under_way_finish_and_count() -> None:
    """Ten at once under a budget of three: three are made and end, whatever the others are told; then no more."""
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=3))) as place:
        place.upstream.answers = [words()]
        place.upstream.pace_s = 0.05
        first = await asyncio.gather(*(post(place, stream=True, seed=n) for n in range(10)))
        assert sorted(a.status_code for a in first) == [200] * 3 + [400] * 7
        assert len(place.events(ModelCallCompleted)) == len(place.upstream.bodies) == 3
        assert (await post(place)).status_code == 400


async def test_tokens_are_known_when_an_answer_is_there() -> None:
    """Ten at once under a budget of tokens: all that began end, what comes after is refused."""
    async with gateway_place(budget=Budgets(rollout=Budget(output_tokens=1))) as place:
        place.upstream.answers = [words()]
        place.upstream.pace_s = 0.05
        first = await asyncio.gather(*(post(place, stream=True, seed=n) for n in range(10)))
        assert {a.status_code for a in first} == {200}
        assert len(place.events(ModelCallCompleted)) == 10
        assert (await post(place)).status_code == 400


async def test_a_failed_call_gives_its_place_back() -> None:
    """Only answers are counted in the end: an error uses up nothing."""
    for budget in (Budgets(rollout=Budget(model_calls=2)), Budgets(run=Budget(model_calls=2))):
        async with gateway_place(budget=budget) as place:
            place.upstream.answers = [JSONResponse({"error": {"message": "no"}}, 500), words()]
            assert [(await post(place, seed=n)).status_code for n in range(4)] == [503, 200, 200, 400]


async def test_a_budget_of_the_run_is_shared_by_its_rollouts() -> None:
    """What other sessions of the run have used counts; another run's does not."""
    budget = Budgets(run=Budget(total_tokens=12))
    async with gateway_place(budget=budget) as place:
        place.upstream.answers = [words()]
        other = await open_session(place.server, place.codec, rollout_id="1-0", budget=budget)
        foreign = await open_session(place.server, place.codec, run_id="r2", budget=budget)
        own = place.grant
        for grant, code in (
            (own, 200),
            (other, 200),
            (foreign, 200),
            (own, 200),
            (other, 400),
            (own, 400),
            (foreign, 200),
        ):
            place.grant = grant
            assert (await post(place)).status_code == code  # what this gateway has recorded counts at once
        assert {(f.scope, f.limit, f.used) for f in stated(place)} == {("run", "total_tokens", 15.0)}


async def test_a_budget_outlives_its_gateway() -> None:
    """What was used is folded from the log: another gateway refuses as the first one did, and says so once."""
    async with gateway_place(budget=Budgets(rollout=Budget(model_calls=1)), is_doubled=True) as place:
        place.upstream.answers = [words()]
        assert (await post(place)).status_code == 200
        assert (await post(place)).status_code == 400
        place.first_is_silent()
        assert (await post(place, url=place.second_url)).status_code == 400
        assert len(stated(place)) == 1


async def test_prices_are_by_the_million() -> None:
    """Read, read from a cache, written; in the event."""
    async with gateway_place(prices=Prices(input=10, cached_input=1, output=20)) as place:
        place.upstream.answers = [words()]
        await post(place)
        (done,) = [e.data for e in place.events(ModelCallCompleted)]
        assert isinstance(done, ModelCallCompleted)
        assert done.cost_usd == pytest.approx((3 * 10 + 2 * 20) / 1e6)
