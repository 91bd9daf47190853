"""An agent that is a Python function: whoever configures a run says which, and `python_worker` runs it in the machine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from adapters.harnesses.base import Activation, Harness, Plan, Tokens, Trace, Unsupported, environment_of
from adapters.harnesses.readers import LineReader, Record, as_text, number, word
from adapters.harnesses.trajectory import (
    Finished,
    Item,
    ReplyDone,
    Said,
    SessionNamed,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)
from schemas.harnesses import PythonAgent

WORKER: Final = Path(__file__).with_name("python_worker")
WORKER_PACKAGE: Final = "adapters.harnesses.python_worker"
MODULES: Final = ("__init__", "replies", "runner", "telling", "work")
CARRIED: Final = "gym_bus_worker"
"""What it is called in the machine, where an agent may have a package called as ours is."""
START: Final = f"""
import os
import sys

if __name__ == "__main__":  # multiprocessing reads this once more in a child
    if sys.version_info < (3, 9):
        sys.exit("error: %s is Python %d.%d, and python_agent needs 3.9 or newer" % (sys.executable, *sys.version_info[:2]))
    theirs = [os.path.abspath(place) for place in os.environ["PYTHONPATH"].split(":") if place]
    both, sys.path[:] = sys.path[:], [place for place in sys.path if place not in theirs]
    from {CARRIED}.runner import start

    sys.path[:] = both
    start(sys.argv[1], sys.argv[2:])
"""
"""What needs Python's own modules finds those, whatever the agent's are called."""


def plan(agent: PythonAgent, activation: Activation) -> Plan:
    """See `Harness.plan`. A new session's id follows from the activation's address."""
    home = f"{activation.home}/.python"
    prompt = activation.system_prompt
    said = {
        "function": agent.function,
        "model": activation.model,
        "base_url": activation.base_url,
        "api_key": activation.base_url.rpartition("/a/")[2],
        "workspace": activation.workspace,
        "home": f"{home}/kept",
        "session": activation.resume or uuid.uuid5(uuid.NAMESPACE_URL, activation.base_url).hex,
        "is_resumed": activation.resume is not None,
        "system_prompt": prompt.text if prompt else None,
        "context_tokens": activation.context_tokens,
        "max_output_tokens": activation.max_output_tokens,
    }
    modules = {
        f"{home}/{CARRIED}/{name}.py": (WORKER / f"{name}.py").read_text().replace(WORKER_PACKAGE, CARRIED)
        for name in MODULES
    }
    variables = {
        "PYTHONPATH": ":".join(agent.python_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return Plan(
        argv=(
            agent.python or activation.python,
            f"{home}/{CARRIED}_start.py",
            f"{home}/said.json",
            *activation.extra_args,
        ),
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={**modules, f"{home}/{CARRIED}_start.py": START, f"{home}/said.json": json.dumps(said)},
        stdin=activation.prompt,
    )


def reader() -> LineReader:
    """Return a reader for what the worker prints."""
    return LineReader(_Output().interpret)


class _Output:
    """What the function returns is told as the last words, unless the model's own are the same.

    The worker tells nothing after its result. Where something follows, somebody else wrote one of the two: then there is none.
    """

    def __init__(self) -> None:
        self._last: str | None = None
        self._is_over = False
        self._is_doubted = False

    def interpret(self, record: Record) -> Iterable[Item] | None:  # noqa: PLR0911  one return a kind
        if self._is_over:
            return self._too_late()
        match record["type"]:
            case "session":
                return [SessionNamed(str(record["id"]))]
            case "prompt":
                return [Said("user", str(record["text"]))]
            case "reply":
                return self._reply(record)
            case "done":
                return [_done(record)]
            case "left_out":
                return [complaint(f"{record['count']} things that the agent told were left out: they were too many")]
            case "finished":
                return self._finished(record)
            case "failed":
                return [complaint(str(record["message"]), is_final=True)]
            case _:
                return None

    def _too_late(self) -> list[Item]:
        if self._is_doubted:
            return []
        self._is_doubted = True
        message = "something was told after the result, so not all of it was told by the worker"
        return [complaint(message, is_final=True)]

    def _reply(self, record: Record) -> list[Item]:
        texts, calls = [str(text) for text in record["texts"]], record["calls"]
        self._last = texts[-1] if texts and not calls else None
        counts = (number(record.get(name)) for name in ("input_tokens", "output_tokens"))
        return [
            *(Thought(str(text)) for text in record["thoughts"]),
            *(Said("assistant", text) for text in texts),
            *(_asked(call) for call in calls),
            ReplyDone(word(record.get("reply")), *counts),
        ]

    def _finished(self, record: Record) -> list[Item]:
        answer = record["answer"]
        self._is_over = True
        new = answer is not None and answer != self._last
        return [*([Said("assistant", str(answer))] if new else []), Finished("returned")]


def _asked(call: Record) -> ToolAsked:
    arguments = call["arguments"]
    return ToolAsked(
        str(call["id"]), str(call["name"]), as_text(arguments), is_rewritten=not isinstance(arguments, str)
    )


def _done(record: Record) -> ToolDone:
    code, is_error, spent = record["exit_code"], record["is_error"], record["duration_s"]
    return ToolDone(
        str(record["id"]),
        str(record["text"]),
        exit_code=code if isinstance(code, int) else None,
        is_error=None if is_error is None else bool(is_error),
        duration_s=None if spent is None else float(spent),
    )


def with_function(agent: PythonAgent) -> Harness:
    """Return the harness that runs `agent`."""
    return replace(PYTHON, plan=partial(plan, agent), resumes=agent.resumes)


def _unconfigured(activation: Activation) -> Plan:
    msg = f"python_agent cannot be run in {activation.workspace} without agent.function"
    raise Unsupported(msg)


PYTHON: Final = Harness(
    name="python_agent",
    packages=(),
    dialect="chat",
    plan=_unconfigured,
    tokens=Tokens(has_prefix=False, arguments="rewritten", sends_thoughts=False),
    system_prompts=frozenset({"append", "replace"}),
    grants=frozenset({"model", "http"}),
    is_worker=True,
    memory_mib=1024,
)
"""What all of them have in common; nothing is known of their calls of the model, and they speak whatever dialect they like."""
