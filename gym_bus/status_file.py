"""Where a supervisor keeps its lock and says how its processes are; readable when nothing answers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from gym_bus.kept_process import owner_pid


def supervisor_lock(data_dir: Path) -> Path:
    """Return the lock that the supervisor of `data_dir` holds."""
    return data_dir / "supervisor" / "lock"


def status_path(data_dir: Path) -> Path:
    """Return where the supervisor writes its status once a second."""
    return data_dir / "supervisor" / "status.json"


def gateway_wish(data_dir: Path) -> Path:
    """Return the file that is there while a gateway is wanted."""
    return data_dir / "supervisor" / "gateway-wanted"


def logs_dir(data_dir: Path) -> Path:
    """Return where the processes' output goes."""
    return data_dir / "logs"


def host_lock(data_dir: Path, host_id: str) -> Path:
    """Return the lock that the host `host_id` holds."""
    return data_dir / "hosts" / host_id / "lock"


def supervisor_pid(data_dir: Path) -> int | None:
    """Return the running supervisor, None if none runs."""
    return owner_pid(supervisor_lock(data_dir))


def write_status(data_dir: Path, status: dict[str, Any]) -> None:
    """Replace the status atomically."""
    path = status_path(data_dir)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({**status, "written_at": time.time()}, indent=1), encoding="utf-8")
    temporary.replace(path)


def read_status(data_dir: Path) -> dict[str, Any] | None:
    """Return the last status that was written, None if there is none; `age_s` says how old it is."""
    try:
        status: dict[str, Any] = json.loads(status_path(data_dir).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {**status, "age_s": max(0.0, time.time() - float(status.get("written_at", 0)))}
