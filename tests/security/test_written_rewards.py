"""Rewards that tests write in their machine: what else they leave there does not make theirs another's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from actors.sandbox.rewards import Rewards
from providers.sandboxes import make_provider
from providers.sandboxes.base import Box
from schemas.events import GradingDone
from schemas.sandboxes import Bubblewrap, Layout, SandboxLimits

PLACE = "/logs/verifier"
DONE = GradingDone(request_id="r", exit_code=0)


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    config = Bubblewrap(layout=Layout(workspace="/app", scratch=(PLACE,)), limits=SandboxLimits(processes=512))
    provider = make_provider(config, tmp_path / "boxes")
    try:
        yield await provider.create("rewards.1-0.b1")
    finally:
        await provider.aclose()


async def read_after(box: Box, tests: str) -> GradingDone:
    """Return what is known of a reward when `tests` have run."""
    rewards = Rewards(box, PLACE, "k")
    await rewards.begin()
    ended = await box.exec(tests, key="tests", timeout_s=60)
    assert ended.exit_code == 0, ended.output
    return await rewards.read(DONE)


@pytest.mark.parametrize(
    "beside",
    [
        "seq -f 'a-name-that-takes-its-room-in-an-argument-%.0f' 1 40000 | xargs touch",
        "mkdir reward.json.d .hidden; touch -- -rf '*' .hidden/x",
        "chmod 500 .",
    ],
)
async def test_what_lies_beside_a_reward_does_not_count(box: Box, beside: str) -> None:
    """However much it is, and whatever rights the directory was left with."""
    done = await read_after(box, f"cd {PLACE} && echo 0.5 >reward.txt && {beside}")
    assert (done.rewards, done.rewards_changed) == ({"reward.txt": "0.5\n"}, False)


async def test_what_writes_on_is_found_out(box: Box) -> None:
    writer = f"(while :; do echo 1 >{PLACE}/reward.txt; done) >/dev/null 2>&1 & sleep 0.2"
    assert (await read_after(box, writer)).rewards_changed
