"""Loops that compact, killed at every boundary: whoever goes on asks the same, and the log says where a context begins."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gym_bus import boundary
from projections.samples import check, rebuild
from providers.models.base import ModelAnswer, ModelCall, context_digest
from providers.models.evidence import TokenEvidence
from schemas.config import ReplayModel
from schemas.envelope import Envelope
from schemas.events import AgentNudged, ContextCompacted, ModelCallRequested, ProgressNoted, RolloutFinished
from schemas.loops import BrowsecompAgent, CompactingAgent, OwnLoop
from schemas.values import Message, ToolCall, Usage
from tests.support.checks import check_log
from tests.support.fake_model import FakeModel, fails, with_model
from tests.support.invariants import check_invariants, is_sampled
from tests.support.recording import write
from tests.support.virtual_time import run_virtual
from tests.support.world import SimHost, World, config, kill_at

TURNS = 7
MOST_MESSAGES = 10
RESTART_AFTER_S = 0.3
HELD_BY_H0 = tuple(n for n in boundary.BOUNDARIES if n.split(".")[0] in {"harness", "model"})
AGENTS: dict[str, OwnLoop] = {
    "recency": CompactingAgent.model_validate(
        {
            "max_steps": 30,
            "context_history": {
                "policy": {"tool_results": {"keep_last_results": 2, "omission_marker": "-"}},
                "schedule": {"type": "rolling_recency"},
            },
        }
    ),
    "summary": CompactingAgent.model_validate(
        {
            "max_steps": 30,
            "system_prompt": "Be brief.",
            "context_history": {"guards": {"max_total_tokens": 80}, "summary": {"keep_last_rounds": 1}},
        }
    ),
    "reset": BrowsecompAgent(
        enable_tools=True, context_reset_tokens=80, context_reset_keep_rounds=1, answer_pattern="<answer>"
    ),
    "overflow": BrowsecompAgent(enable_tools=True, context_reset_keep_rounds=1, answer_pattern="<answer>"),
}


@dataclass(frozen=True)
class Outcome:
    """What a run came to: what was asked, by turn and length; the events; which boundaries were passed."""

    asked: dict[tuple[int, int], tuple[Message, ...]]
    events: tuple[Envelope, ...]
    hits: Counter[str]
    kills: int

    def told(self, kind: type[Any]) -> list[Any]:
        """Return the events of one type; which try of a call wrote a summary is left out."""
        found = [e.data for e in self.events if isinstance(e.data, kind)]
        return [d.replaced(summary_call=None) if isinstance(d, ContextCompacted) else d for d in found]


def _ids(message: Message) -> tuple[int, ...]:
    """Return ten ids for a message; those of an answer are what was generated."""
    digest = hashlib.sha256(message.model_dump_json().encode()).digest()
    return tuple(int.from_bytes(digest[3 * i : 3 * i + 3], "big") for i in range(10))


def _says(call: ModelCall) -> Message:
    """Answer as a model would that works for some turns, writes down what it is asked to, and first ends in the wrong form."""
    last = call.messages[-1].content or ""
    if call.messages[-1].role == "user" and "Write down, in plain text" in last:
        return Message(role="assistant", content=f"Summary of {len(call.messages)} messages.")
    if call.messages[-1].role == "user" and "update_progress" in last:
        note = ToolCall(id=f"n{call.turn}", name="update_progress", arguments=f'{{"progress": "Turn {call.turn}."}}')
        return Message(role="assistant", tool_calls=(note,))
    if call.turn < TURNS:
        shell = ToolCall(id=f"c{call.turn}", name="shell", arguments=f'{{"command": "echo $((10 * {call.turn}))"}}')
        return Message(role="assistant", content=f"Turn {call.turn}.", tool_calls=(shell,))
    return Message(role="assistant", content="<answer>1</answer>" if call.turn > TURNS else "1")


def _answer(call: ModelCall) -> ModelAnswer:
    message = _says(call)
    prompt = tuple(itertools.chain.from_iterable(map(_ids, call.messages)))
    tokens = TokenEvidence(prompt, _ids(message), (-0.5,) * 10, "raw")
    usage = Usage(input_tokens=len(prompt), output_tokens=10)
    return ModelAnswer(message, "tool_calls" if message.tool_calls else "stop", usage, tokens=tokens)


def _answer_if_short(call: ModelCall) -> ModelAnswer:
    if len(call.messages) > MOST_MESSAGES:
        raise fails("context_overflow", terminal=True)
    return _answer(call)


async def _run(name: str, target: tuple[str, int] | None, replay: ReplayModel | None = None) -> Outcome:
    world, kills = World(tasks=1), 0
    loop = asyncio.get_running_loop()

    def come_back(host: SimHost) -> None:
        nonlocal kills
        kills += 1
        loop.call_later(RESTART_AFTER_S, lambda: world.start_host(host.host_id, host.kinds))

    model = FakeModel(_answer_if_short if name == "overflow" else _answer)
    if replay is None:
        with_model(world, model)
    kill_at(world, [target] if target else [], come_back)
    try:
        world.start_host("h0", ("harness",))
        world.start_host("h1", ("collector", "sandbox", "verifier"))
        await world.request_run("r1", config(agent=AGENTS[name], **({"model": replay} if replay else {})))
        await world.finished("r1", 300)
        await world.quiet(100)
    finally:
        boundary.install(None)
        await world.stop()
    check_log(world.events())
    if target is None or is_sampled():
        check_invariants(world)
    asked: dict[tuple[int, int], tuple[Message, ...]] = {}
    for call in model.calls:
        told = asked.setdefault((call.turn, len(call.messages)), call.messages)
        assert told == call.messages, "a turn was asked in two ways"
    return Outcome(asked, tuple(world.events()), Counter(world.hits), kills)


@cache
def undisturbed(name: str) -> Outcome:
    """Return what the run comes to when nothing happens."""
    return run_virtual(_run(name, None))


@pytest.mark.parametrize("name", AGENTS)
def test_each_context_is_in_the_log_and_no_prefix_is_claimed(name: str) -> None:
    """What each call was told is put together again from the log, and token rows end where a context ends."""
    outcome = undisturbed(name)
    calls: dict[str, tuple[Message, ...]] = {}
    digests: dict[str, str] = {}
    roots = 0
    answers = {e.data.request_id: e.data.message for e in outcome.events if e.type == "model_call_completed.v1"}
    for event in outcome.events:
        if not isinstance(asked := event.data, ModelCallRequested):
            continue
        before = (*calls[asked.parent_id], answers[asked.parent_id]) if asked.parent_id else ()
        roots += asked.parent_id is None
        calls[event.event_id] = (*before, *asked.new_messages)
        assert calls[event.event_id] == outcome.asked[asked.turn, len(calls[event.event_id])]
        digests[event.event_id] = context_digest(
            digests[asked.parent_id] if asked.parent_id else "", asked.new_messages
        )
        assert asked.context_digest == digests[event.event_id]
    compacted = outcome.told(ContextCompacted)
    assert {data.policy for data in compacted} == {"reset" if name == "overflow" else name}
    assert roots == len(compacted) + 1
    rebuilt = rebuild([e for e in outcome.events if e.rollout_id != "_"])
    assert not check(rebuilt)
    assert [s.relation for s in rebuilt.samples] == ["main"] + ["restart"] * len(compacted)
    for sample in rebuilt.samples:
        last = sample.call_ids[-1]
        told = tuple(itertools.chain.from_iterable(map(_ids, (*calls[last], answers[last]))))
        assert sample.token_ids == told


def test_what_each_kind_leaves_in_the_log() -> None:
    """Summaries are calls with a purpose, resets come with a warning and notes, a wrong form with a nudge."""
    summary = undisturbed("summary")
    purposes = [a.purpose for a in summary.told(ModelCallRequested)]
    assert purposes.count("summary") == len(summary.told(ContextCompacted)) > 0
    reset = undisturbed("reset")
    reasons = [n.reason for n in reset.told(AgentNudged)]
    assert reasons.count("reset_near") == len(reset.told(ContextCompacted)) == len(reset.told(ProgressNoted)) > 0
    assert reasons[-1] == "wanted_form"
    assert [f.state for f in reset.told(RolloutFinished)] == ["scored"]


@pytest.mark.parametrize("at", HELD_BY_H0)
@pytest.mark.parametrize("name", AGENTS)
def test_whoever_takes_over_asks_the_same(name: str, at: str) -> None:
    """Killed wherever it may be, a session ends with the same events, and the model is told the same at each turn."""
    hits = undisturbed(name).hits[at]
    assert hits
    kinds = (ContextCompacted, AgentNudged, ProgressNoted, RolloutFinished)
    for nth in sorted({hits // 2 or 1, hits}):
        outcome = run_virtual(_run(name, (at, nth)))
        assert outcome.kills == 1, "the boundary was not hit"
        assert outcome.asked == undisturbed(name).asked
        for kind in kinds:
            assert outcome.told(kind) == undisturbed(name).told(kind)


@pytest.mark.parametrize("name", AGENTS)
def test_a_recording_of_one_can_be_run_again(name: str, tmp_path: Path) -> None:
    """Every call is found again, those for a summary and those that were refused too, and nobody is asked."""
    recorded = undisturbed(name)
    outcome = run_virtual(_run(name, None, write(tmp_path / "run.jsonl", list(recorded.events))))
    assert outcome.asked == {}
    for kind in (ContextCompacted, AgentNudged, ProgressNoted, RolloutFinished, ModelCallRequested):
        assert len(outcome.told(kind)) == len(recorded.told(kind)), kind
    assert [c.policy for c in outcome.told(ContextCompacted)] == [c.policy for c in recorded.told(ContextCompacted)]
