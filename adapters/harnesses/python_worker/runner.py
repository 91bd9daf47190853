"""Runs one agent that is a Python function through one input. Its configuration is a file, the input is its standard input.

It prints JSON lines: the session, the input, each reply of the model, each result of a tool, and last the result, or why there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
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
APART = 200


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
    """Return what an agent's result says: a text as it is, anything else as JSON.

    Raises `TypeError` or `ValueError` for what is none.
    """
    if result is None or isinstance(result, str):
        return result
    plain = result.model_dump(mode="json") if hasattr(result, "model_dump") else result
    return json.dumps(plain, allow_nan=False)


async def awaited(result: Any, telling: Telling) -> int:
    """Wait for a coroutine, and tell what comes of it before its loop is closed, which may wait for what the agent left in it.

    It is cancelled when the process is asked to end.
    """
    loop, working, asked = asyncio.get_running_loop(), asyncio.current_task(), threading.Event()

    def ask() -> None:
        asked.set()
        if working is not None:
            working.cancel()

    loop.add_signal_handler(signal.SIGTERM, ask)
    try:
        return returned(telling, await result)
    except asyncio.CancelledError as error:
        return raised(telling, Interrupted() if asked.is_set() else error)
    except BaseException as error:  # noqa: BLE001  also an exit: without a result it has failed
        return raised(telling, error)


def interrupted(*_: object) -> None:
    """Let a function that is no coroutine end."""
    raise Interrupted


def returned(telling: Telling, result: Any) -> int:
    """Tell the result; raises `TypeError` or `ValueError` for one that is no JSON."""
    return ended(telling, 0, WRITTEN_WITHIN_S, "finished", answer=answer_of(result))


def raised(telling: Telling, error: BaseException) -> int:
    """Tell why there is no result, but for one who was asked to end."""
    if isinstance(error, Interrupted):
        return ended(telling, 128 + signal.SIGTERM, INTERRUPTED_WITHIN_S)
    message = "".join(traceback.format_exception_only(type(error), error)).strip()[:MESSAGE_MAX_CHARS]
    code = ended(telling, 1, WRITTEN_WITHIN_S, "failed", message=message)
    with contextlib.suppress(Exception):  # the agent may have closed it
        traceback.print_exception(type(error), error, error.__traceback__)
    return code


def ended(telling: Telling, code: int, within_s: float, kind: str | None = None, **facts: Any) -> int:
    """Tell the last, and return the exit code; from now on the process has `LEFT_WITHIN_S`."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = code if telling.end(within_s, kind, **facts) else code or 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    leaving = threading.Timer(LEFT_WITHIN_S, os._exit, (code,))
    leaving.daemon = True
    leaving.start()
    return code


def run(said: dict[str, Any], telling: Telling) -> int:
    """Run the function; 1 if it failed, 143 if it was asked to end."""
    prompt = sys.stdin.buffer.read().decode(errors="replace")
    telling.tell("session", id=said["session"])
    telling.tell("prompt", text=prompt)
    signal.signal(signal.SIGTERM, interrupted)
    os.register_at_fork(after_in_child=partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))
    try:
        Path(said["home"]).mkdir(parents=True, exist_ok=True)
        result = found(said["function"])(Work(said, prompt, telling))
        return asyncio.run(awaited(result, telling)) if inspect.isawaitable(result) else returned(telling, result)
    except BaseException as error:  # noqa: BLE001  also an exit: without a result it has failed
        return raised(telling, error)


def apart(descriptor: int) -> int:
    """Return a copy of a descriptor, where nobody comes who closes the first few."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, APART)
    except OSError:  # there may be no more than that
        return os.dup(descriptor)


def start(path: str, arguments: list[str]) -> None:
    """Run what the file says, and end; threads that the agent left going are not waited for."""
    said = json.loads(Path(path).read_text())
    sys.argv[:] = [said["function"], *arguments]
    lines = apart(1)
    os.dup2(2, 1)  # what the agent prints is no line of ours
    sys.exit(run(said, Telling(lines)))
