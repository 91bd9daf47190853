"""A program that goes on in a sandbox in which it was before: what it left in the way is its own failure, and none of the set-up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors.sandbox import launching
from actors.sandbox.launches import FollowLaunch, OpenLaunch
from actors.sandbox.launching import LaunchHandlers
from adapters.harnesses.asking import HOME
from adapters.harnesses.launching import LaunchBox
from adapters.harnesses.launching.launch import LAUNCHES
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive
from gym_bus.subjects import aggregate
from providers.sandboxes import SandboxProvider
from schemas.events import LaunchFailed, LaunchRequested
from schemas.harnesses import CodexAgent
from schemas.sandboxes import Bubblewrap
from schemas.values import Party
from tests.support.boxes import provider_of
from tests.support.launches import LIMITS

OBSTACLES = [
    f"mkdir -p {HOME}; chmod 000 {HOME}",
    f"touch {HOME}",
    f"touch {LAUNCHES}",
    f"mkdir -p {LAUNCHES}/supervisor.py",
]


async def never(*_: Any) -> None:
    """Refuse nobody."""


@pytest.mark.parametrize("resume", [None, "s-1"])
@pytest.mark.parametrize("lays", OBSTACLES)
async def test_what_lies_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lays: str, resume: str | None
) -> None:
    """Another attempt, which begins in a sandbox of its own, may follow; in one that nobody was in, none would do better."""
    provider: SandboxProvider = await provider_of("bubblewrap", tmp_path / "boxes", None, LIMITS)
    monkeypatch.setattr(launching, "refusal_of", never)
    try:
        box = cast("LaunchBox", await provider.create("launching.again.b1"))
        assert (await box.exec(lays, key="k", timeout_s=10)).exit_code == 0
        drive = SimpleNamespace(
            held=SimpleNamespace(launches={}, box=box),
            state=SimpleNamespace(gateway_url="http://127.0.0.1:8089", request=SimpleNamespace(sandbox=Bubblewrap())),
            aggregate=aggregate("r1", "0-0", "sandbox", "b1"),
            attempt=1,
        )
        request = LaunchRequested(
            agent=CodexAgent(), activation=2 if resume else 1, prompt="On.", model="m", timeout_s=9, resume=resume
        )
        asked = OpenLaunch(request_id="go", request=request, epoch=1, asker=Party(actor="harness", key="s1"))
        handlers = LaunchHandlers(tmp_path, cast("Any", never))
        stated = await handlers.follow(cast("Drive[Any]", drive), FollowLaunch("launch", asked))
    finally:
        await provider.aclose()
    assert isinstance(stated, Draft)
    assert isinstance(stated.data, LaunchFailed)
    failure = stated.data.failure
    assert (failure.kind, failure.terminal) == (("agent_failed", False) if resume else ("unsupported", True))
    assert ("what the agent left" in failure.message) == bool(resume)
