"""A whole agent as one function, with Python's own library alone: it has one tool, a shell, and goes on with its session.

`work` is what gym-bus gives it (docs/harnesses.md); `work.replied` and `work.ran` tell what it does, as it does it.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

STEPS_MAX = 50
COMMAND_TIMEOUT_S = 600
SHELL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a shell command in the workspace.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def solve(work: Any) -> str | None:
    """Let the model call the shell until it calls nothing more; its last words are the answer."""
    conversation = Path(work.home, "conversation.json")
    messages = json.loads(conversation.read_text()) if work.is_resumed else []
    if work.system_prompt and not messages:
        messages.append({"role": "system", "content": work.system_prompt})
    messages.append({"role": "user", "content": work.prompt})
    for _ in range(STEPS_MAX):
        reply = ask(work, messages)
        work.replied(reply)
        message = reply["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls") or ():
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": run(work, call)})
        conversation.write_text(json.dumps(messages))
        if not message.get("tool_calls"):
            return message.get("content")
    raise RuntimeError(f"max_steps: {STEPS_MAX}")


def ask(work: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model's reply."""
    body = {"model": work.model, "messages": messages, "tools": [SHELL], "max_tokens": work.max_output_tokens}
    request = urllib.request.Request(
        f"{work.base_url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": f"Bearer {work.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=3600) as response:
        return json.load(response)


def run(work: Any, call: dict[str, Any]) -> str:
    """Run what the model wants, tell what came of it, and return what the model is told."""
    began = time.monotonic()
    try:
        command = json.loads(call["function"]["arguments"])["command"]
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
        )
        text, code = done.stdout.decode(errors="replace"), done.returncode
    except (ValueError, KeyError, TypeError, subprocess.TimeoutExpired) as error:
        text, code = f"{type(error).__name__}: {error}", 1
    work.ran(call["id"], text, exit_code=code, duration_s=time.monotonic() - began)
    return f"{text[-30_000:]}\nexit code: {code}"
