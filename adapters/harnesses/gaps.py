"""What each harness is known not to tell: the kinds of gaps that joining finds in a run that went well, and why."""

from __future__ import annotations

from typing import Final

from adapters.harnesses.joining import GapKind

KNOWN_GAPS: Final[dict[str, dict[GapKind, str]]] = {
    "codex_agent": {},
    "pi_agent": {"arguments_rewritten": "it keeps arguments as parsed JSON"},
    "mini_swe_agent": {
        "duration_unknown": "its trajectory has no times of commands",
        "exit_code_unknown": "the command that hands in its work is not told as run",
    },
}
"""By harness: kinds of gaps, and why."""
