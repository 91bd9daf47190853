"""The machine in which launches are tried."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from adapters.harnesses.launching import LaunchBox
from providers.sandboxes import SandboxProvider
from tests.support.boxes import provider_of
from tests.support.launches import LIMITS


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[SandboxProvider]:
    provider = await provider_of("bubblewrap", tmp_path / "boxes", None, LIMITS)
    yield provider
    await provider.aclose()


@pytest.fixture
async def box(provider: SandboxProvider) -> LaunchBox:
    return cast("LaunchBox", await provider.create(f"launching.{os.getpid()}.b1"))
