"""What an agent that is a Python function is given: its task, its model, and how it tells what it does."""

from __future__ import annotations

from typing import Any

from adapters.harnesses.python_worker.replies import told_reply
from adapters.harnesses.python_worker.telling import Telling


class Work:
    """One input. What it has is fixed; `replied` and `ran` return at once, and may be called from any thread.

    prompt: what the user says.
    system_prompt: what the run or the task wants to be said to the model beforehand, or None.
    model: what the model is called.
    base_url: the model gateway, with its token in it: `f"{base_url}/v1"` for OpenAI's client, as it is for Anthropic's.
    api_key: the token, for clients that want a key.
    workspace: the directory that is graded; it is the current one.
    home: a directory that is kept for the session's next input.
    session: the name of the session, the same for each of its inputs.
    is_resumed: whether there was an input before this one.
    context_tokens, max_output_tokens: what the model takes, and may answer.
    """

    def __init__(self, said: dict[str, Any], prompt: str, telling: Telling) -> None:
        """Take what the run says."""
        self.prompt = prompt
        self.system_prompt: str | None = said["system_prompt"]
        self.model: str = said["model"]
        self.base_url: str = said["base_url"]
        self.api_key: str = said["api_key"]
        self.workspace: str = said["workspace"]
        self.home: str = said["home"]
        self.session: str = said["session"]
        self.is_resumed: bool = said["is_resumed"]
        self.context_tokens: int = said["context_tokens"]
        self.max_output_tokens: int = said["max_output_tokens"]
        self._telling = telling

    def replied(self, response: Any) -> None:
        """Tell a reply of the model, as soon as it is whole: an answer of OpenAI's or Anthropic's client, or its JSON as a dictionary.

        Raises `ValueError` for anything else.
        """
        self._telling.tell("reply", **told_reply(response))

    def ran(
        self,
        call_id: str,
        text: str,
        *,
        exit_code: int | None = None,
        is_error: bool | None = None,
        duration_s: float | None = None,
    ) -> None:
        """Tell what came of a tool's call, by the id that the model gave it, as soon as it is over."""
        is_error = exit_code != 0 if is_error is None and exit_code is not None else is_error
        self._telling.tell("done", id=call_id, text=text, exit_code=exit_code, is_error=is_error, duration_s=duration_s)
