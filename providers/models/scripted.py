"""The deterministic stand-in for a language model: it solves integer arithmetic with the shell, and errs as told.

Every decision is a function of the seed, the task, the repeat and the turn, never of time, attempt or process: a run
that was interrupted any number of times ends with the same answers as one that was not.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from typing import Final

from providers.arithmetic import BadExpression, DividedByZero, evaluate, find_expression
from providers.models.base import ModelAnswer, ModelCall, ModelError, Target
from providers.sandboxes.ledger import Ledger
from schemas.config import ScriptedModel as ScriptedModelConfig
from schemas.events.model import StopReason
from schemas.values import Failure, Message, ToolCall, Usage

_INTEGER: Final = re.compile(r"-?[0-9]{1,30}")
CHARACTERS_PER_TOKEN: Final = 4


class ScriptedModel:
    """A model whose answers are known in advance."""

    def __init__(self, config: ScriptedModelConfig) -> None:
        self._config = config
        self._ledger = Ledger(config.ledger_path)

    async def target(self, call: ModelCall) -> Target:  # noqa: ARG002  it is the same for all
        """Return that nobody is called."""
        return Target(None)

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer `call` after its latency; raise `ModelError` for the first try of a turn that is to fail."""
        facts: dict[str, str | int] = {
            "task_id": call.task_id,
            "repeat": call.repeat,
            "turn": call.turn,
            "tries": call.tries,
        }
        self._ledger.start("model", call.call_id, **facts)
        await self._wait(call)
        if call.tries <= 1 and self._happens(call, "failure", self._config.failure_rate):
            raise ModelError(Failure(kind="provider_unavailable", message="scripted failure", stage="model"))
        message = self._message(call)
        stop_reason: StopReason = "tool_calls" if message.tool_calls else "stop"
        return ModelAnswer(message, stop_reason, _usage(call.messages, message))

    async def aclose(self) -> None:
        """Close the ledger."""
        self._ledger.close()

    def _chance(self, call: ModelCall, purpose: str) -> float:
        """Return a number in [0, 1) that depends on what is asked and on nothing else."""
        parts = (str(self._config.seed), call.task_id, str(call.repeat), str(call.turn), purpose)
        digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def _happens(self, call: ModelCall, purpose: str, rate: float) -> bool:
        return rate > 0 and self._chance(call, purpose) < rate

    async def _wait(self, call: ModelCall) -> None:
        spread = self._config.latency_spread * (2 * self._chance(call, "latency") - 1)
        latency_s = self._config.latency_s * (1 + spread)
        if latency_s > 0:
            await asyncio.sleep(min(latency_s, self._config.timeout_s))
        if latency_s > self._config.timeout_s:
            text = f"no answer within {self._config.timeout_s:g} s"
            raise ModelError(Failure(kind="transport_timeout", message=text, stage="model"))

    def _message(self, call: ModelCall) -> Message:
        question, since = _last_question(call.messages)
        expression = find_expression(question)
        if expression is None:
            return Message(role="assistant", content="I cannot answer this: I only know integer arithmetic.")
        if call.tools and not _was_executed(since):
            return self._ask_shell(call, expression, can_slip=not since)
        value = _printed(since)
        return self._conclude(call, _own_value(expression) if value is None else value)

    def _ask_shell(self, call: ModelCall, expression: str, *, can_slip: bool) -> Message:
        arguments = json.dumps({"command": f"echo $(({expression}))"})
        if can_slip and self._happens(call, "malformed", self._config.malformed_rate):
            arguments = arguments[:-2]  # torn before the closing quote, as by a token limit
        tool_call = ToolCall(id=f"call{call.turn}x0", name="shell", arguments=arguments)
        return Message(role="assistant", tool_calls=(tool_call,))

    def _conclude(self, call: ModelCall, value: int | None) -> Message:
        if value is None:
            return Message(role="assistant", content="I could not work out the result.")
        if self._happens(call, "error", self._config.error_rate):
            value += 1
        return Message(role="assistant", content=f"The result is {value}.\n<answer>{value}</answer>")


def _last_question(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the last user message and what followed it."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user":
            return messages[place].content or "", messages[place + 1 :]
    raise ModelError(Failure(kind="provider_bad_request", message="no user message", stage="model", terminal=True))


def _was_executed(since: Sequence[Message]) -> bool:
    """Say whether a call was understood: the scripted model sends at most one that cannot be."""
    calls = [tool_call for message in since for tool_call in message.tool_calls]
    return any(_is_json(tool_call.arguments) for tool_call in calls)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _printed(since: Sequence[Message]) -> int | None:
    """Return the integer in the last tool message, None if there is anything else in it."""
    contents = [message.content or "" for message in since if message.role == "tool"]
    found = _INTEGER.fullmatch(contents[-1].strip()) if contents else None
    return int(found[0]) if found else None


def _own_value(expression: str) -> int | None:
    try:
        return evaluate(expression)
    except (BadExpression, DividedByZero):
        return None


def _usage(messages: Sequence[Message], answer: Message) -> Usage:
    return Usage(input_tokens=sum(map(_tokens, messages)), output_tokens=_tokens(answer))


def _tokens(message: Message) -> int:
    characters = len(message.content or "") + sum(len(call.name) + len(call.arguments) for call in message.tool_calls)
    return -(-characters // CHARACTERS_PER_TOKEN)
