"""Runs one agent that is a Python function through one input. Its configuration is a file, the input is its standard input.

It prints JSON lines: the session, the input, each reply of the model, each result of a tool, and last the result, or why there is none.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from adapters.harnesses.python_worker.telling import Telling
from adapters.harnesses.python_worker.work import Work

WRITTEN_WITHIN_S = 60.0
"""What it told, when it is done."""
INTERRUPTED_WITHIN_S = 3.0
"""The same, when it is asked to end: some time later it is killed."""
LEFT_WITHIN_S = 10.0
"""What is left of the process when all is told."""
MESSAGE_MAX_CHARS = 4000


class Interrupted(BaseException):
    """It was asked to end."""


def found(name: str) -> Callable[[Work], Any]:
    """Return the function that is called `module:function`; raises whatever importing it raises."""
    module, _, path = name.partition(":")
    here: Any = importlib.import_module(module)
    for part in path.split("."):
        here = getattr(here, part)
    if not callable(here):
        raise TypeError(f"{name} is a {type(here).__name__}, and no function")
    return here  # type: ignore[no-any-return]


def answer_of(result: Any) -> str | None:
    """Return what an agent's result says: a text as it is, anything else as JSON; raises `TypeError` for what is none."""
    if result is None or isinstance(result, str):
        return result
    plain = result.model_dump(mode="json") if hasattr(result, "model_dump") else result
    return json.dumps(plain)


async def awaited(result: Any) -> Any:
    """Wait for a coroutine; it is cancelled when the process is asked to end."""
    loop, working = asyncio.get_running_loop(), asyncio.current_task()
    if working is not None:
        loop.add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        return await result
    except asyncio.CancelledError:
        raise Interrupted from None


def interrupted(*_: object) -> None:
    """Let a function that is no coroutine end."""
    raise Interrupted


def run(said: dict[str, Any], telling: Telling) -> int:
    """Run the function; 1 if it failed, 143 if it was asked to end."""
    prompt = sys.stdin.read()
    telling.tell("session", id=said["session"])
    telling.tell("prompt", text=prompt)
    Path(said["home"]).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        result = found(said["function"])(Work(said, prompt, telling))
        result = asyncio.run(awaited(result)) if inspect.isawaitable(result) else result
        answer = answer_of(result)
    except Interrupted:
        telling.end(INTERRUPTED_WITHIN_S)
        return 128 + signal.SIGTERM
    except BaseException as error:  # noqa: BLE001  also an exit: without a result it has failed
        traceback.print_exc()
        message = "".join(traceback.format_exception_only(type(error), error)).strip()[:MESSAGE_MAX_CHARS]
        telling.end(WRITTEN_WITHIN_S, "failed", message=message)
        return 1
    return 0 if telling.end(WRITTEN_WITHIN_S, "finished", answer=answer) else 1


def start(path: str, arguments: list[str]) -> None:
    """Run what the file says, and end; threads that the agent left going are not waited for."""
    said = json.loads(Path(path).read_text())
    sys.argv[:] = [said["function"], *arguments]
    lines = os.dup(1)
    os.dup2(2, 1)  # what the agent prints is no line of ours
    code = run(said, Telling(lines))
    leaving = threading.Timer(LEFT_WITHIN_S, os._exit, (code,))
    leaving.daemon = True
    leaving.start()
    sys.exit(code)
