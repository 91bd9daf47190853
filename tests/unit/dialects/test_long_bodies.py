"""Bodies and streams with very many of something take as long as they are long, and no longer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from providers.dialects.catalog import CLIENTS, DIALECTS
from providers.dialects.folding import Folding
from schemas.conversation import DialectName, PartEnded, Request
from tests.support.gemini_client import GeminiClient

MANY: Final = 10_000
SHORT_S: Final = 8
"""Many times what is needed, and a small part of what it takes to look at each for each."""


@contextmanager
def shortly() -> Iterator[None]:
    """Fail if the processor is busy for long."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < SHORT_S


@pytest.mark.parametrize("has_ids", [True, False])
def test_results_in_any_order_find_their_calls(has_ids: bool) -> None:
    def named(n: int) -> dict[str, Any]:
        return {"name": f"f{n}", **({"id": f"c{n}"} if has_ids else {})}

    calls = [{"functionCall": named(n)} for n in range(MANY)]
    results = [{"functionResponse": {**named(n), "response": {"output": str(n)}}} for n in reversed(range(MANY))]
    contents = [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    with shortly():
        called, answered = GeminiClient().read_request({"model": "m", "contents": contents}).turns
    assert [part.call_id for part in answered.parts] == [part.id for part in reversed(called.parts)]  # type: ignore[union-attr]


def entry(n: int, **where: int) -> dict[str, Any]:
    return {**where, "id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{"}}


def more(n: int, **where: int) -> dict[str, Any]:
    return {**where, **({} if where else {"id": f"c{n}"}), "function": {"arguments": "}"}}


def chat(*calls: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"tool_calls": list(calls)} if calls else {}, "finish_reason": stop}
    return {"id": "i", "model": "m", "choices": [choice]}


def of_chat(*, has_index: bool) -> list[dict[str, Any]]:
    """Return calls that are all open at once."""
    told = [{"index": n} if has_index else {} for n in range(MANY)]
    began = [chat(entry(n, **where)) for n, where in enumerate(told)]
    return [*began, *(chat(more(n, **where)) for n, where in enumerate(told)), chat(stop="tool_calls")]


def of_messages() -> list[dict[str, Any]]:
    """Return texts that are all open at once, and a call among them."""
    began = {"type": "message_start", "message": {"id": "i", "model": "m", "content": []}}
    text, call = {"type": "text", "text": ""}, {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    starts = [{"type": "content_block_start", "index": n, "content_block": text} for n in range(MANY)]
    starts.append({"type": "content_block_start", "index": MANY, "content_block": call})
    said = {"type": "text_delta", "text": "x"}
    deltas = [{"type": "content_block_delta", "index": n, "delta": said} for n in range(MANY)]
    stops = [{"type": "content_block_stop", "index": n} for n in range(MANY + 1)]
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    return [began, *starts, *deltas, *stops, end, {"type": "message_stop"}]


@pytest.mark.parametrize(
    ("backend", "events"),
    [("chat", of_chat(has_index=True)), ("chat", of_chat(has_index=False)), ("messages", of_messages())],
    ids=["calls by index", "calls by id", "texts"],
)
def test_parts_that_are_open_at_once_are_read_folded_and_written(
    backend: DialectName, events: list[dict[str, Any]]
) -> None:
    reader, whole, cut = DIALECTS[backend].stream_reader(), Folding(backend), Folding(backend)
    with shortly():
        deltas = [delta for event in events for delta in reader.feed(None, json.dumps(event))] + reader.end()
        for delta in deltas:
            whole.add(delta)
        assert len(whole.reply().parts) >= MANY
    with shortly():
        for delta in deltas:
            if not isinstance(delta, PartEnded):
                cut.add(delta)
        assert len(cut.reply().parts) >= MANY
    for name, client in CLIENTS.items():
        writer = client.stream_writer(Request(dialect=name, model="m", turns=(), is_streamed=True))
        with shortly():
            assert all(isinstance(writer.write(delta), bytes) for delta in deltas)
