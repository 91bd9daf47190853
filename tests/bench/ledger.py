"""The account of model calls that is kept outside the log, compared with the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gym_bus.event_log import EventLog
from schemas.events import ModelCallCompleted, ModelCallRequested

Turn = tuple[str, int, int]
"""A turn of an attempt: rollout, attempt, turn."""


@dataclass(slots=True)
class Calls:
    """What the log says about model calls: the turn and place of each, and where each turn's answer is."""

    asked: dict[str, tuple[Turn, int]] = field(default_factory=dict)
    answered: dict[Turn, int] = field(default_factory=dict)


async def read_calls(log: EventLog, run_id: str) -> Calls:
    """Read all model calls of a run."""
    calls = Calls()
    async for event in log.read(f"gym.evt.0.{run_id}.*.model.>"):
        match event.data:
            case ModelCallRequested():
                turn = (event.rollout_id, event.attempt, event.data.turn)
                calls.asked[event.event_id] = (turn, event.sequence)
            case ModelCallCompleted():
                turn = (event.rollout_id, event.attempt, event.data.turn)
                calls.answered.setdefault(turn, event.sequence)
            case _:
                pass
    return calls


def read_ledger(path: Path) -> list[str]:
    """Return the ids of the calls that were made, in their order."""
    return [json.loads(line)["key"] for line in path.read_text().splitlines()]


def asked_again(calls: Calls, made: Sequence[str], made_at_kill: int, last_at_kill: int) -> int:
    """Count calls made although the log held the answer of their turn.

    A call was decided on after its request was stored, so one whose request comes after the answer counts; so does one
    made after the kill whose turn was answered before it.
    """
    count = 0
    for place, call_id in enumerate(made):
        turn, sequence = calls.asked[call_id]
        answer = calls.answered.get(turn)
        if answer is not None and (sequence > answer or (place >= made_at_kill and answer <= last_at_kill)):
            count += 1
    return count


def repaid(calls: Calls, made: Sequence[str]) -> int:
    """Count calls beyond the first of each turn of each attempt."""
    per_turn = Counter(calls.asked[call_id][0] for call_id in made)
    return sum(count - 1 for count in per_turn.values())
