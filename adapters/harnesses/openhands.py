"""OpenHands: an agent made with its library (`openhands_runner.py`), which tells every event of its conversation."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from adapters.harnesses.base import Activation, Harness, Package, Plan, Tokens
from adapters.harnesses.readers import LineReader, Record, number, word
from adapters.harnesses.runners import NO_TELEMETRY, model_of, runner_plan
from adapters.harnesses.servers import entry_of
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

STEPS_MAX: Final = 250
RUNNER: Final = Path(__file__).with_name("openhands_runner.py")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`. A new session's id follows from the activation's address."""
    home = f"{activation.home}/.openhands"
    prompt = activation.system_prompt
    said = {
        **model_of(activation),
        "system_prompt": {"text": prompt.text, "mode": prompt.mode} if prompt else None,
        "session": activation.resume or uuid.uuid5(uuid.NAMESPACE_URL, activation.base_url).hex,
        "storage": f"{home}/conversations",
        "steps": STEPS_MAX,
        "withheld": sorted(activation.withheld),
        "servers": {server.name: entry_of(server) for server in activation.mcp},
        "tool_timeout_s": max((server.waits_s for server in activation.mcp), default=0.0),
        "has_skills": activation.skills is not None,
    }
    variables = {
        "GYM_BUS_PACKAGES": f"{activation.installed}/site",
        **NO_TELEMETRY,
        "OPENHANDS_SUPPRESS_BANNER": "1",
        "OTEL_SDK_DISABLED": "true",
        "DO_NOT_TRACK": "1",
    }
    return runner_plan(activation, RUNNER, home, (activation.brought_python, "-I"), said, variables, reader)


def reader() -> LineReader:
    """Return a reader for what the runner prints."""
    return LineReader(_Output().interpret)


class _Output:
    """A reply with several calls is told call by call; what comes after the last one says that it is over."""

    def __init__(self) -> None:
        self._open: ReplyDone | None = None

    def interpret(  # noqa: PLR0911  one return a kind
        self, record: Record
    ) -> Iterable[Item] | None:
        match record["type"]:
            case "session":
                return [SessionNamed(str(record["id"]))]
            case "said":
                return [*self._over(), Said("system" if record["role"] == "system" else "user", str(record["text"]))]
            case "asked":
                return self._asked(record)
            case "answered":
                return [*self._over(), *_words(record), _reply(record)]
            case "done":
                return [*self._over(), _done(record)]
            case "finished":
                return [*self._over(), Finished(str(record["reason"]))]
            case "failed":
                return [*self._over(), complaint(str(record["message"]), is_final=True)]
            case _:
                return None

    def _asked(self, record: Record) -> list[Item]:
        before = [] if self._open and self._open.reply_id == word(record["reply"]) else self._over()
        self._open = _reply(record)
        return [*before, *_words(record), ToolAsked(str(record["id"]), str(record["name"]), str(record["arguments"]))]

    def _over(self) -> list[Item]:
        done, self._open = self._open, None
        return [done] if done else []


def _words(record: Record) -> list[Item]:
    items: list[Item] = []
    if record.get("thought"):
        items.append(Thought(str(record["thought"])))
    if record.get("text"):
        items.append(Said("assistant", str(record["text"])))
    return items


def _reply(record: Record) -> ReplyDone:
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")
    return ReplyDone(word(record["reply"]), *(number(record.get(name)) for name in names))


def _done(record: Record) -> ToolDone:
    """Return a result; what has the code -1 still runs."""
    code, spent = number(record.get("exit_code")), record.get("duration_s")
    return ToolDone(
        str(record["id"]), str(record["text"]), code, bool(record["is_error"]), None if spent is None else float(spent)
    )


OPENHANDS: Final = Harness(
    name="openhands",
    packages=(Package("pypi", "openhands-sdk", "1.58.2"), Package("pypi", "openhands-tools", "1.58.2")),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=False),
    needs_python=("3.12", "3.13"),
    system_prompts=frozenset({"append", "replace"}),
    withholds=frozenset({"terminal", "file_editor", "task_tracker", "think"}),
    grants=frozenset({"model", "mcp"}),
    resumes=True,
    finds_skills=True,
    is_worker=True,
    memory_mib=1024,
)
