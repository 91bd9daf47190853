"""Runs aider, once, as its library. Carried into the machine as text; its configuration is a file, its prompt the input.

It prints JSON lines: what is said to the model, each reply, and how it all did.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aider.coders import Coder  # type: ignore[import-not-found]
from aider.io import InputOutput  # type: ignore[import-not-found]
from aider.models import Model, model_info_manager  # type: ignore[import-not-found]


class Telling:
    """Prints what happens, and keeps how the last call of the model failed."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self.error: str | None = None

    def tell(self, kind: str, **facts: Any) -> None:
        """Print a line."""
        os.write(self._lines, (json.dumps({"type": kind, **facts}) + "\n").encode())

    def listen_to(self, model: Any) -> None:
        """Have each reply of the model told as it comes."""
        complete = model.send_completion

        def told(*arguments: Any, **more: Any) -> Any:
            try:
                digest, response = complete(*arguments, **more)
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
                raise
            self.error = None
            self._reply(response)
            return digest, response

        model.send_completion = told

    def watch(self, coder: Any) -> None:
        """Have what is said to the model told: the prompt, and what aider says of edits that did not fit."""
        send = coder.send_message

        def told(words: str) -> Iterator[Any]:
            self.tell("said", text=words)
            yield from send(words)

        coder.send_message = told

    def _reply(self, response: Any) -> None:
        message, usage = response.choices[0].message, getattr(response, "usage", None)
        details = getattr(usage, "prompt_tokens_details", None)
        self.tell(
            "reply",
            reply=response.id,
            text=message.content or "",
            thought=getattr(message, "reasoning_content", None),
            input_tokens=getattr(usage, "prompt_tokens", None),
            output_tokens=getattr(usage, "completion_tokens", None),
            cached_tokens=getattr(details, "cached_tokens", None),
        )


def model_of(said: dict[str, Any]) -> Any:
    """Return the model that the file describes; what aider asks beside its task, it asks the same one."""
    name = f"openai/{said['model']}"
    model_info_manager.local_model_metadata[name] = {  # else it asks the internet
        "max_input_tokens": said["context_tokens"],
        "max_output_tokens": said["max_tokens"],
        "input_cost_per_token": 0.0,
        "output_cost_per_token": 0.0,
        "litellm_provider": "openai",
        "mode": "chat",
    }
    model = Model(name, weak_model=name, editor_model=name)
    model.extra_params = {
        "api_base": said["base_url"],
        "api_key": said["api_key"],
        "max_tokens": said["max_tokens"],
        "timeout": said["call_timeout_s"],
        "max_retries": 0,
    }
    return model


def main(path: str) -> int:
    """Run what the file says; 1 if the agent failed."""
    said = json.loads(Path(path).read_text())
    lines = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no line of ours
    os.chdir(said["workspace"])
    telling = Telling(lines)
    try:
        io = InputOutput(
            pretty=False, yes=True, fancy_input=False, chat_history_file=str(Path(said["storage"], "history.md"))
        )
        model = model_of(said)
        telling.listen_to(model)
        coder = Coder.create(
            main_model=model,
            edit_format="diff",
            io=io,
            fnames=[],
            use_git=False,
            map_tokens=0,
            stream=False,
            auto_lint=False,
            suggest_shell_commands=False,
            detect_urls=False,
        )
        telling.watch(coder)
        coder.run(with_message=sys.stdin.read(), preproc=False)
    except Exception as error:  # noqa: BLE001  told, and that is its end
        telling.tell("failed", message=f"{type(error).__name__}: {error}"[:4000])
        return 1
    if telling.error or coder.num_exhausted_context_windows:
        message = telling.error or "context_length: aider's context is full"
        telling.tell("failed", message=message[:4000])
        return 1
    telling.tell("finished", reason="edited" if coder.aider_edited_files else "answered")
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(code)  # threads of libraries do not keep it
