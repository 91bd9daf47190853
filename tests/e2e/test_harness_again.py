"""Each harness for real, run twice from the same files: it asks the second time what it asked the first, and nothing is paid twice.

What it writes anew each time is listed in `adapters/harnesses/anew.py`; what else differed would be asked of the model again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from actors.gateway.grants import mint
from adapters.harnesses.table import HARNESSES
from schemas.events import ModelCallCompleted, ModelCallRecalled
from tests.support.configured_agents import place_of
from tests.support.gateway_place import KEY
from tests.support.harness_place import HOME, WORKSPACE
from tests.support.model_script import backend_for, script_for

IN_EVERY_RUN = ("codex_agent", "pi_agent")


@pytest.mark.parametrize(
    "name",
    [
        *IN_EVERY_RUN,
        *(pytest.param(name, marks=pytest.mark.harness) for name in sorted(set(HARNESSES) - set(IN_EVERY_RUN))),
    ],
)
async def test_a_second_launch_asks_nothing_new(name: str, tmp_path: Path) -> None:
    """All of its calls are answered from the log, and it ends as it did."""
    harness = HARNESSES[name]
    script = script_for(name, backend_for(harness.dialect))
    async with place_of(harness, tmp_path, script) as at:
        first, _ = await at.run()
        asked = len(at.place.upstream.bodies)
        await at.said(f"rm -rf {HOME} {WORKSPACE}/* {WORKSPACE}/.[!.]*")
        token = mint(KEY, replace(at.place.grant, launch=2))
        second, account = await at.run(base_url=at.base_url.replace(at.place.token, token))
        assert (first.exit_code, second.exit_code, account.failure) == (0, 0, None)
        assert len(at.place.upstream.bodies) == asked, at.place.upstream.bodies[asked]
        assert len(at.place.events(ModelCallRecalled)) == len(at.place.events(ModelCallCompleted)) == asked
        assert await at.said("cat hello.txt") == "hello from here\n"
