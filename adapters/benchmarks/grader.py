"""The process in which answers are graded: `python -m adapters.benchmarks.grader`.

It reads a JSON object a line, `{id, verifier, verifier_data, evidence}`, and answers each with a line `{id, grade}` or
`{id, error}`. It also loads tasks, because generators are the same foreign code: `{id, load, path}` writes a taskset's tasks
to a file as JSON lines, and `{id, warm}` imports what a kind of taskset needs before it is asked for.

Scorers are foreign code that may print, hang, or use up memory: standard output is moved out of their reach, memory is
bounded, and deadlines are the parent's. It grades in its main thread, because math-verify's own deadline is an alarm.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from adapters.benchmarks.catalog import find_grader, load_tasks, warm
from gym_bus.errors import BadTaskset
from schemas.config import TasksetConfig
from schemas.tasks import Evidence

MEMORY_MAX_BYTES: Final = 4 * 1024**3
ERROR_MAX_CHARACTERS: Final = 1000
_PR_SET_PDEATHSIG: Final = 1


def graded(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request; whatever goes wrong is an answer too."""
    try:
        grade = find_grader(request["verifier"])(request["verifier_data"], Evidence.model_validate(request["evidence"]))
        return {"id": request["id"], "grade": {**asdict(grade), "components": dict(grade.components)}}
    except Exception as error:  # noqa: BLE001  the process is the boundary: foreign code raises what it likes
        return {"id": request.get("id"), "error": f"{type(error).__name__}: {error}"[:ERROR_MAX_CHARACTERS]}


def loaded(request: dict[str, Any]) -> dict[str, Any]:
    """Write a taskset's tasks to the file `path`; return how many, or why not."""
    try:
        config = TypeAdapter[TasksetConfig](TasksetConfig).validate_python(request["load"])
        tasks = load_tasks(config)
        Path(request["path"]).write_bytes(b"".join(task.model_dump_json().encode() + b"\n" for task in tasks))
    except BadTaskset as error:
        return {"id": request["id"], "bad_taskset": str(error)[:ERROR_MAX_CHARACTERS]}
    except Exception as error:  # noqa: BLE001  the process is the boundary: foreign code raises what it likes
        return {"id": request["id"], "error": f"{type(error).__name__}: {error}"[:ERROR_MAX_CHARACTERS]}
    return {"id": request["id"], "loaded": len(tasks)}


def answered(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request of any kind."""
    if "load" in request:
        return loaded(request)
    if "warm" in request:
        warm(request["warm"])
        return {"id": request["id"], "warm": True}
    return graded(request)


def main() -> None:
    """Grade line by line until standard input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hanging scorer would not see that its input ended
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES if hard < 0 else min(MEMORY_MAX_BYTES, hard), hard))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    for line in sys.stdin.buffer:
        answers.write(json.dumps(answered(json.loads(line))).encode() + b"\n")


if __name__ == "__main__":
    main()
