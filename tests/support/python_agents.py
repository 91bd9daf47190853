"""The example of an agent that is a Python function, as tests configure it: the directory that its sandbox is shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from gym_bus.shared_directories import MARKER
from schemas.harnesses import PythonAgent
from schemas.sandboxes import SharedDirectory

EXAMPLE: Final = Path(__file__).resolve().parents[2] / "examples" / "python_agent" / "agent.py"
PLACE: Final = "/opt/python_agent"


def example(function: str = "agent:solve", **more: Any) -> PythonAgent:
    """Return the example's agent, or another function of what is shown beside it."""
    return PythonAgent(**{"function": function, "python_path": (PLACE,), "resumes": True, **more})


def shown(programs: Path, **modules: str) -> tuple[SharedDirectory, ...]:
    """Return what its sandbox is shown: the example and other `modules`, by name, in a directory below `programs`."""
    directory = programs / "stand-ins" / "python_agent"
    directory.mkdir(parents=True, exist_ok=True)
    files = {MARKER: "", "agent.py": EXAMPLE.read_text(), **{f"{name}.py": text for name, text in modules.items()}}
    for name, content in files.items():
        place, part = directory / name, directory / f".{name}.{os.getpid()}"
        if not place.exists() or place.read_text() != content:
            part.write_text(content)
            part.rename(place)
    return (SharedDirectory(source=str(directory), at=PLACE),)


def configured(directory: Path, shared: tuple[SharedDirectory, ...]) -> tuple[str, ...]:
    """Write a run's configuration into a directory; return how the command line is told of it, whichever sandbox that names."""
    path = directory / "python.yaml"
    path.write_text(json.dumps({"agent": example().model_dump(mode="json")}))
    return ("--config", str(path), f"sandbox.shared={json.dumps([one.model_dump() for one in shared])}")
