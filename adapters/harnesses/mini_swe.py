"""mini-swe-agent: one loop, one tool (`bash`), calls without streaming. Its trajectory is one document, written anew at each step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from adapters.harnesses.base import NO_KEY, Activation, Harness, Package, Plan, Tokens, Trace, environment_of
from adapters.harnesses.literal import as_yaml
from adapters.harnesses.readers import DocumentReader, Record, as_text, number, text_of, word
from adapters.harnesses.trajectory import (
    Complained,
    Finished,
    Item,
    ReplyDone,
    Said,
    Thought,
    ToolAsked,
    ToolDone,
    complaint,
)

STEPS_MAX: Final = 250
TRAJECTORY: Final = "trajectory.json"


def plan(activation: Activation) -> Plan:
    """See `Harness.plan`. The configuration is JSON, which is YAML as well."""
    home = f"{activation.home}/.mini"
    base_url = f"{activation.base_url}/v1"
    agent: Record = {"mode": "yolo", "cost_limit": 0, "step_limit": STEPS_MAX}
    if activation.system_prompt:
        agent["system_template"] = _literal(activation.system_prompt.text)
    model = {"model_kwargs": {"api_base": base_url, "api_key": NO_KEY, "max_tokens": activation.max_output_tokens}}
    argv = (
        activation.python, "-m", "minisweagent.run.mini", "-c", "mini.yaml", "-c", f"{home}/extra.yaml",
        "-m", f"openai/{activation.model}", f"--task={activation.prompt}", "-y", "--exit-immediately",
        "-o", f"{home}/{TRAJECTORY}", *activation.extra_args,
    )  # fmt: skip
    variables = {
        "PYTHONPATH": f"{activation.installed}/site",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": home,
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "OPENAI_API_KEY": NO_KEY,
        "OPENAI_API_BASE": base_url,
    }
    return Plan(
        argv=argv,
        environment=environment_of(activation, variables),
        traces=(Trace(f"{home}/{TRAJECTORY}", reader, is_document=True),),
        files={f"{home}/extra.yaml": as_yaml({"model": model, "agent": agent})},
    )


def _literal(text: str) -> str:
    """Return a Jinja template that says just this."""
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}"


def reader() -> DocumentReader:
    """Return a reader for the trajectory."""
    return DocumentReader(lambda document: document["messages"], _interpret)


def _interpret(message: Record) -> Iterable[Item] | None:
    extra: Record = message.get("extra") or {}
    match message["role"]:
        case "system" | "user":
            return [Said(message["role"], text_of(message["content"]))]
        case "assistant":
            return _reply(message, extra)
        case "tool":
            return [_done(message, extra)]
        case "exit":
            return [_exit(message, extra)]
        case _:
            return None


def _reply(message: Record, extra: Record) -> list[Item]:
    items: list[Item] = []
    if message.get("reasoning_content"):
        items.append(Thought(str(message["reasoning_content"])))
    if text := text_of(message.get("content")):
        items.append(Said("assistant", text))
    for call in message.get("tool_calls") or ():
        asked = call["function"]
        items.append(ToolAsked(str(call["id"]), str(asked["name"]), as_text(asked["arguments"])))
    response: Record = extra.get("response") or {}
    usage: Record = response.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"), cached, thought)
    return [*items, ReplyDone(word(response.get("id")), *map(number, counts))]


def _done(message: Record, extra: Record) -> ToolDone:
    """Return a result; what has the code -1 was not run, or was cut off."""
    code = extra.get("returncode")
    was_run = isinstance(code, int) and code >= 0
    return ToolDone(
        str(message["tool_call_id"]),
        text_of(message["content"]),
        exit_code=code if was_run else None,
        is_error=bool(code) if was_run else None,
    )


def _exit(message: Record, extra: Record) -> Item:
    status = str(extra.get("exit_status"))
    if status == "Submitted":
        return Finished(status)
    words = f"{status}: {text_of(message.get('content'))}"
    found = complaint(words, is_final=True)
    return Complained("steps", found.message, is_final=True) if status == "LimitsExceeded" else found


MINI_SWE: Final = Harness(
    name="mini_swe_agent",
    packages=(Package("pypi", "mini-swe-agent", "2.4.6"),),
    dialect="chat",
    plan=plan,
    tokens=Tokens(has_prefix=True, arguments="verbatim", sends_thoughts=True),
    system_prompts=frozenset({"replace"}),
    grants=frozenset({"model", "http"}),
    prompt_by="argument",
    memory_mib=1024,
)
