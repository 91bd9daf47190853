"""A model whose answers a test writes, and how a simulated run with it is brought to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from providers.models.base import ModelAnswer, ModelCall, ModelError, Target
from schemas.values import Failure, Message, ToolCall, Usage
from tests.support.checks import check_log
from tests.support.invariants import check_invariants
from tests.support.world import World


class FakeModel:
    """A model whose answers a test writes: a function of the call."""

    def __init__(self, answer: Callable[[ModelCall], ModelAnswer]) -> None:
        self.answer = answer
        self.calls: list[ModelCall] = []
        self.delay_s = 0.0

    async def target(self, call: ModelCall) -> Target:
        """Return that nobody is called."""
        return Target(None)

    async def complete(self, call: ModelCall) -> ModelAnswer:
        """Answer."""
        self.calls.append(call)
        await asyncio.sleep(self.delay_s)
        return self.answer(call)

    async def aclose(self) -> None:
        """Nothing to give back."""


def says(text: str, tokens: int = 0) -> ModelAnswer:
    """Return a final answer of so many tokens."""
    return ModelAnswer(Message(role="assistant", content=text), "stop", Usage(output_tokens=tokens))


def calls_tools(*arguments: str, tokens: int = 0) -> ModelAnswer:
    """Return an answer that calls the shell."""
    calls = tuple(ToolCall(id=f"c{i}", name="shell", arguments=a) for i, a in enumerate(arguments))
    return ModelAnswer(
        Message(role="assistant", content=None, tool_calls=calls), "tool_calls", Usage(output_tokens=tokens)
    )


def fails(kind: str, *, terminal: bool = False) -> ModelError:
    """Return a failure to raise."""
    return ModelError(Failure(kind=kind, message=f"the model says {kind}", stage="model", terminal=terminal))  # type: ignore[arg-type]


def with_model(world: World, model: FakeModel) -> FakeModel:
    """Make every configuration use `model`."""
    world.model_for = lambda _: model  # type: ignore[method-assign]
    return model


async def settled(world: World) -> None:
    """Wait until nothing is left to do, and check the log, with the SQL invariants too."""
    await world.quiet(120)
    check_log(world.events())
    check_invariants(world)
    await world.stop()
