"""What each harness tells of an activation, beside what the gateway records, by what it is known not to tell."""

from __future__ import annotations

from typing import Final, get_args

from adapters.harnesses.gaps import GAPS_OF_SERVERS, KNOWN_GAPS
from adapters.harnesses.joining import GapKind
from schemas.harnesses import Observation

TELL_COMPACTION: Final = frozenset({"claude_code_agent", "codex_agent", "copilot_agent", "pi_agent"})
"""Those that say where they left out, or summarised, what was said before."""
TAKES: Final[dict[Observation, GapKind]] = {"timing": "duration_unknown", "reasoning": "thoughts_missing"}
"""The gap that makes an observation one that a harness cannot give."""


def observed(name: str) -> frozenset[Observation]:
    """Return what the harness `name` tells."""
    gaps = {*KNOWN_GAPS[name], *GAPS_OF_SERVERS.get(name, {})}
    missing = {kind for kind, gap in TAKES.items() if gap in gaps}
    if name not in TELL_COMPACTION:
        missing.add("compaction")
    return frozenset(get_args(Observation)) - missing
