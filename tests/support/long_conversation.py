"""A conversation of many turns, with tokens, and what it costs the log."""

from __future__ import annotations

from actors.gateway.conversation import Answered, Times
from providers.models.base import Target
from providers.models.evidence import TokenEvidence
from schemas.conversation import Reply, Request, Text, TokenUsage, Tool, Turn
from tests.support.gateway_place import conversation_in, gateway_place

NEW_IDS = 40
SAID_IDS = 20


async def log_bytes(turns: int) -> int:
    """Return the bytes of all events of a conversation of so many turns: each asks something, and gets an answer with tokens."""
    async with gateway_place() as place:
        conversation = conversation_in(place)
        history = [Turn(role="system", parts=(Text(text="Be brief. " * 50),))]
        ids = list(range(200))
        for n in range(turns):
            history.append(Turn(role="user", parts=(Text(text=f"question {n} " * 10),)))
            ids += range(1_000 * n, 1_000 * n + NEW_IDS)
            request = Request(dialect="chat", model="m", turns=tuple(history), tools=(Tool(name="shell"),))
            call = await conversation.ask(request, Target("http://upstream"))
            said = Text(text=f"answer {n} " * 10)
            generated = tuple(range(500 + 1_000 * n, 500 + 1_000 * n + SAID_IDS))
            reply = Reply(
                dialect="chat", id=f"r{n}", model="m", parts=(said,), stop_reason="stop",
                usage=TokenUsage(input_tokens=len(ids), output_tokens=SAID_IDS),
            )  # fmt: skip
            tokens = TokenEvidence(tuple(ids), generated, (-0.5,) * SAID_IDS, "raw")
            await conversation.complete(call, Answered(reply, Times(0.1), tokens))
            history.append(Turn(role="assistant", parts=(said,)))
            ids += generated
        return sum(len(s.body) for s in place.server.events)
