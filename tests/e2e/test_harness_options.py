"""What a run may change about any program, for real: none of its own tools, another version, more in its own configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from adapters.harnesses.asking import package_of, withheld_of
from adapters.harnesses.installing import installs_of, shared_with
from adapters.harnesses.table import HARNESSES, harness_of
from adapters.harnesses.trajectory import Said
from providers.dialects.catalog import DIALECTS
from schemas.conversation import Tool
from schemas.harnesses import CodexAgent, KiloCodeAgent, OpenCodeAgent, PiAgent, Program
from tests.support.harness_place import AGENTS, PROGRAMS, check_the_usual_run, harness_place
from tests.support.model_script import LAST_WORDS, ModelScript, backend_for

WITHOUT = sorted(name for name, harness in HARNESSES.items() if harness.withholds_all)
DENY = {"permission": {"task": "deny", "webfetch": "deny"}}
CONFIGURED: dict[str, tuple[Program, frozenset[str]]] = {
    "codex_agent": (CodexAgent(extra_config={"features": {"goals": False}}), frozenset({"get_goal", "create_goal"})),
    "kilocode_agent": (KiloCodeAgent(kilo_config=DENY), frozenset({"task", "webfetch"})),
    "opencode_agent": (OpenCodeAgent(opencode_config=DENY), frozenset({"task", "webfetch"})),
}


def offered(body: dict[str, Any], harness_dialect: str) -> set[str]:
    """Return the names of the tools that a model is offered."""
    dialect = DIALECTS[backend_for(harness_dialect)]  # type: ignore[arg-type]
    return {tool.name for tool in dialect.read_request(body).tools or () if isinstance(tool, Tool)}


def asked(bodies: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the first that the model was asked."""
    return next(body for body in bodies if "input" in body or "messages" in body)


@pytest.mark.harness
@pytest.mark.parametrize("name", WITHOUT)
async def test_none_of_its_own_tools(tmp_path: Path, name: str) -> None:
    """The model is offered nothing to call, and answers in words."""
    harness = HARNESSES[name]
    withheld = withheld_of(AGENTS.validate_python({"type": name, "enable_tools": False}))
    script = ModelScript(backend_for(harness.dialect), commands=())
    async with harness_place(harness, tmp_path, script) as at:
        receipt, account = await at.run(withheld=withheld)
        assert offered(asked(at.place.upstream.bodies), harness.dialect) == set()
        assert (receipt.exit_code, receipt.is_clean, account.failure) == (0, True, None)
        said = [item.text for item in account.items if isinstance(item, Said) and item.role == "assistant"]
        assert said[-1] == LAST_WORDS


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "codex_agent" else pytest.mark.harness) for name in CONFIGURED]
)
async def test_more_in_its_own_configuration(tmp_path: Path, name: str) -> None:
    """It does what it is told there, and works as before."""
    agent, gone = CONFIGURED[name]
    dialect = harness_of(agent).dialect
    async with harness_place(HARNESSES[name], tmp_path, agent=agent) as at:
        await at.run(home="/tmp/plain")
        assert gone <= offered(asked(at.place.upstream.bodies), dialect)
        calls = len(at.place.upstream.bodies)
        receipt, _ = await at.run(config=agent.own_config, home="/tmp/other")
        assert receipt.exit_code == 0
        assert not gone & offered(asked(at.place.upstream.bodies[calls:]), dialect)


async def test_more_about_its_model(tmp_path: Path) -> None:
    """Pi is told that its model takes no `store`, and says none."""
    more = {"providers": {"gym_bus": {"models": [{"id": "some-model", "compat": {"maxTokensField": "max_tokens"}}]}}}
    agent = PiAgent(models_config=more)
    async with harness_place(HARNESSES["pi_agent"], tmp_path, agent=agent) as at:
        await at.run(home="/tmp/plain")
        assert "max_completion_tokens" in asked(at.place.upstream.bodies)
        calls = len(at.place.upstream.bodies)
        receipt, _ = await at.run(config=agent.own_config, home="/tmp/other")
        assert receipt.exit_code == 0
        assert "max_tokens" in at.place.upstream.bodies[calls]


@pytest.mark.harness
async def test_another_version(tmp_path: Path) -> None:
    """It is installed where the pinned one would be, and is run in its place; the pinned one stays as it is."""
    agent = PiAgent(version="1.5.2")
    async with harness_place(HARNESSES["pi_agent"], tmp_path, package=package_of(agent)) as at:
        assert '"version": "1.5.2"' in await at.said(
            "cat /opt/gym-bus/pi_agent/node_modules/@earendil-works/pi-coding-agent/package.json"
        )
        await check_the_usual_run(at)
    (pinned, *_) = await shared_with(HARNESSES["pi_agent"], installs_of(PROGRAMS))
    where = Path(pinned.source, "node_modules/@earendil-works/pi-coding-agent/package.json")
    assert '"version": "1.6.0"' in await asyncio.to_thread(where.read_text)
