"""Where commands are tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command works in a directory of its own, finds an empty environment, and leaves logging as it was."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GYM_BUS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    yield
    structlog.reset_defaults()
