"""Names and ids: what a token of a subject may look like, and how event ids are made.

Ids are deterministic: the same cause in the same aggregate always yields the same id, so that a
repeated append is recognised by the log instead of by a clock or a window.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, Literal, NewType

RolloutId = NewType("RolloutId", str)
EventId = NewType("EventId", str)

WorkerKind = Literal["collector", "harness", "sandbox", "verifier"]
WORKER_KINDS: Final[tuple[WorkerKind, ...]] = ("collector", "harness", "sandbox", "verifier")

RUN_LEVEL: Final = RolloutId("_")
"""The rollout token under which facts about a whole run are kept."""

TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def digest_id(*parts: str) -> EventId:
    """Return 96 bits of SHA-256 over `parts` as 16 URL-safe characters; the parts may hold any text."""
    joined = "\x1f".join(parts).encode()
    return EventId(base64.urlsafe_b64encode(hashlib.sha256(joined).digest()[:12]).decode())


def session_key(attempt: int) -> str:
    """Return the key of the session (and of its conversation) in attempt `attempt`, numbered from 1."""
    return f"s{attempt}"


def sandbox_key(attempt: int, number: int = 1) -> str:
    """Return the key of the `number`-th sandbox that attempt `attempt` works in; a second one follows only one that was lost."""
    return f"b{attempt}" if number == 1 else f"b{attempt}-{number}"


def verdict_key(attempt: int) -> str:
    """Return the key of the verdict about attempt `attempt`."""
    return f"v{attempt}"


def tools_key(attempt: int) -> str:
    """Return the key under which the gateway records what attempt `attempt` calls of its task's tools."""
    return f"s{attempt}-tools"


def environment_key(attempt: int, number: int) -> str:
    """Return the key of the `number`-th call of the task's tools in attempt `attempt`."""
    return f"e{attempt}-{number}"


def grading_key(attempt: int) -> str:
    """Return the key of the machine in which attempt `attempt` is graded."""
    return f"g{attempt}"


def capture_key(rollout_id: str, attempt: int) -> str:
    """Return `<rollout_id>`, or `<rollout_id>-a<n>` for the n-th restart, counted from 0 for the first attempt."""
    return rollout_id if attempt <= 1 else f"{rollout_id}-a{attempt - 1}"
