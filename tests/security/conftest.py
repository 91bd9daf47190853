"""Each attack is made on every real provider: in bubblewrap, in Docker, and (slow) in podman."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from providers.sandboxes import SandboxProvider
from tests.support.attacked import REAL_KINDS, RUN, RedAgent, provider_of


@pytest.fixture(params=REAL_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return which provider is attacked."""
    return str(request.param)


@pytest.fixture
async def provider(kind: str, tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    """Give a provider of that kind."""
    async with provider_of(kind, tmp_path / "boxes") as provider:
        yield provider


@pytest.fixture
async def red(provider: SandboxProvider, kind: str) -> RedAgent:
    """Return an agent in a box of its own."""
    return RedAgent(await provider.create(f"{RUN}.1.b1"), kind)
