"""Strands: a library for agents, here with one tool (`bash`) and a runner of ours (`strands_runner.py`), which tells every turn."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Harness, Package, Plan, Tokens, Trace, environment_of
from adapters.harnesses.readers import LineReader, Record, as_text, number, text_of
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
SYSTEM_PROMPT: Final = (
    "You work on a task in a sandbox. Run shell commands with the tool `bash`. When the task is done, say so."
)
RUNNER: Final = Path(__file__).with_name("strands_runner.py")


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`. A new session's id follows from the activation's address."""
    home = f"{activation.home}/.strands"
    words = activation.system_prompt.text if activation.system_prompt else SYSTEM_PROMPT
    said = {
        "base_url": f"{activation.base_url}/v1",
        "api_key": NO_KEY,
        "model": activation.model,
        "max_tokens": activation.max_output_tokens,
        "system_prompt": words,
        "session": activation.resume or uuid.uuid5(uuid.NAMESPACE_URL, activation.base_url).hex,
        "storage": f"{home}/sessions",
        "workspace": activation.workspace,
        "steps": STEPS_MAX,
    }
    variables = {
        "PYTHONPATH": f"{activation.installed}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "OTEL_SDK_DISABLED": "true",
    }
    return Plan(
        argv=(activation.python, f"{home}/runner.py", f"{home}/said.json", *activation.extra_args),
        environment=environment_of(activation, variables),
        traces=(Trace("stdout", reader),),
        files={f"{home}/runner.py": RUNNER.read_text(), f"{home}/said.json": json.dumps(said)},
        stdin=activation.prompt,
    )


def reader() -> LineReader:
    """Return a reader for what the runner prints."""
    return LineReader(_Output().interpret)


class _Output:
    """How a command ended is told just before the message in which the model is told what came of it."""

    def __init__(self) -> None:
        self._ended: dict[str, Record] = {}

    def interpret(self, record: Record) -> Iterable[Item] | None:
        match record["type"]:
            case "session":
                return [SessionNamed(str(record["id"]))]
            case "message":
                return self._message(record)
            case "tool":
                self._ended[str(record["id"])] = record
                return []
            case "finished":
                return [Finished(str(record["reason"]))]
            case "failed":
                return [complaint(str(record["message"]), is_final=True)]
            case _:
                return None

    def _message(self, record: Record) -> list[Item]:
        role = "assistant" if record["role"] == "assistant" else "user"
        items = [item for part in record["content"] if (item := self._part(part, role)) is not None]
        if role == "assistant":
            usage = record.get("usage") or {}
            names = ("inputTokens", "outputTokens", "cacheReadInputTokens")
            items.append(ReplyDone(None, *(number(usage.get(name)) for name in names)))
        return items

    def _part(self, part: Record, role: str) -> Item | None:
        if "text" in part:
            return Said("assistant" if role == "assistant" else "user", str(part["text"]))
        if "reasoningContent" in part:
            return Thought(str(part["reasoningContent"]["reasoningText"]["text"]))
        if "toolUse" in part:
            asked = part["toolUse"]
            return ToolAsked(str(asked["toolUseId"]), str(asked["name"]), as_text(asked["input"]), is_rewritten=True)
        if "toolResult" in part:
            return self._done(part["toolResult"])
        return None

    def _done(self, result: Record) -> ToolDone:
        call_id = str(result["toolUseId"])
        ended = self._ended.pop(call_id, {})
        code, spent = ended.get("exit_code"), ended.get("duration_s")
        return ToolDone(
            call_id,
            text_of(result["content"]),
            exit_code=code if isinstance(code, int) else None,
            is_error=result["status"] == "error",
            duration_s=float(spent) if spent is not None else None,
        )


STRANDS: Final = Harness(
    name="simple_strands_agent",
    packages=(Package("pypi", "strands-agents", "1.62.0"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=False),
    system_prompts=frozenset({"replace"}),
    grants=frozenset({"model", "http"}),
    resumes=True,
    is_worker=True,
    memory_mib=512,
)
