"""Named places where a process may be killed, and the switch that kills it there.

`GYM_BUS_FAULT="harness.appended:kill:3"` kills this process with SIGKILL when it reaches that place for the third time. Other
actions: `kill_bus` (SIGKILL to the embedded server of `GYM_BUS_DATA_DIR`), `raise` (an exception), `sleep` (5 s, blocking), `hang`
(for ever, blocking). `GYM_BUS_FAULT_ONCE=FILE` makes it strike once in all processes: whoever creates the file strikes.
`GYM_BUS_FAULT_COVERAGE=FILE` appends each name when a process first passes it. In production `reach` is one comparison.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

POINTS: Final[dict[str, tuple[str, ...]]] = {
    "collector": (
        "received", "claimed", "decided", "before_append", "append_sent", "appended", "fact_received",
        "effect_started", "effect_done", "result_appended", "before_ack", "acked",
    ),
    "harness": (
        "received", "claimed", "decided", "before_append", "append_sent", "appended", "fact_received",
        "effect_started", "effect_done", "before_ack", "acked",
    ),
    "model": ("claimed", "before_append", "append_sent", "appended", "effect_started", "effect_done", "result_appended"),
    "sandbox": (
        "received", "claimed", "decided", "before_append", "append_sent", "appended",
        "effect_started", "effect_done", "result_appended", "before_ack", "acked",
    ),
    "verifier": (
        "received", "claimed", "before_append", "append_sent", "appended",
        "effect_started", "effect_done", "result_appended", "before_ack", "acked",
    ),
    "projector": ("batch_received", "before_commit", "committed", "before_export", "exported"),
}  # fmt: skip
BOUNDARIES: Final[tuple[str, ...]] = tuple(f"{kind}.{point}" for kind, points in POINTS.items() for point in points)

ACTIONS: Final = ("kill", "kill_bus", "raise", "sleep", "hang")

Hook = Callable[[str], None]


class InjectedFault(Exception):
    """Raised at a boundary by the action `raise`."""


def _act(action: str, name: str) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill_bus":
            state = Path(os.environ["GYM_BUS_DATA_DIR"]) / "bus" / "state.json"
            os.kill(int(json.loads(state.read_text())["pid"]), signal.SIGKILL)
        case "raise":
            raise InjectedFault(name)
        case "sleep":
            time.sleep(5)
        case "hang":
            while True:
                time.sleep(3600)
        case _:
            pass


def _is_first(once_path: str | None) -> bool:
    if not once_path:
        return True
    try:
        os.close(os.open(once_path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


def hook_from(spec: str | None, coverage_path: str | None, once_path: str | None = None) -> Hook | None:
    """Return what to do at each boundary, None for nothing; raises ValueError for an unknown place or action."""
    if not spec and not coverage_path:
        return None
    wanted, action, count = (*(spec or "").split(":"), "", "")[:3]
    if spec and (wanted not in BOUNDARIES or action not in ACTIONS):
        msg = f"GYM_BUS_FAULT={spec!r}: want <boundary>:<{'|'.join(ACTIONS)}>:<n>; boundaries: {', '.join(BOUNDARIES)}"
        raise ValueError(msg)
    nth, hits, seen = int(count or 1), 0, set[str]()

    def hook(name: str) -> None:
        nonlocal hits
        if coverage_path and name not in seen:
            seen.add(name)
            with open(coverage_path, "a", encoding="utf-8") as file:  # noqa: PTH123  opened rarely, in tests only
                file.write(name + "\n")
        if name == wanted:
            hits += 1
            if hits == nth and _is_first(once_path):
                _act(action, name)

    return hook


_hook: Hook | None = hook_from(
    os.environ.get("GYM_BUS_FAULT"), os.environ.get("GYM_BUS_FAULT_COVERAGE"), os.environ.get("GYM_BUS_FAULT_ONCE")
)


def install(hook: Hook | None) -> None:
    """Replace what happens at boundaries; for tests in one process."""
    global _hook  # noqa: PLW0603  one switch a process, by design
    _hook = hook


def is_armed() -> bool:
    """Say whether anything may happen at a boundary."""
    return _hook is not None


def reach(kind: str, point: str) -> None:
    """Pass the boundary `point` of the actor `kind`, if that is one."""
    if _hook is not None and point in POINTS.get(kind, ()):
        _hook(f"{kind}.{point}")
