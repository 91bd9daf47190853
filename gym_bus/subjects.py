"""The subject grammar: the only place where subjects are put together or taken apart.

gym.evt.<shard>.<run>.<rollout>.<actor>.<key>.<kind>                facts, claims, snapshots
gym.evt.<shard>.<run>.<rollout>.<actor>.<key>.cmd.<to>.<place>      requests
gym.cmd.<to>.<place>.<shard>.<run>.<rollout>.<actor>.<key>          the same requests in their queue
gym.live.…                                                          stored events, republished by the server
gym.hb.<kind>.<host>                                                heartbeats (never stored)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from gym_bus.errors import Permanent
from schemas.ids import RUN_LEVEL, TOKEN

EVENTS: Final = "gym.evt."
QUEUES: Final = "gym.cmd."
ANY: Final = "any"
CONTROL: Final = "ctl"
CLAIM: Final = "claim"
SNAPSHOT: Final = "snapshot"
CMD: Final = "cmd"
FACT_TOKENS: Final = 8
REQUEST_TOKENS: Final = 10


def token(text: str) -> str:
    """Return `text` if it can stand in a subject (1 to 64 of A-Z a-z 0-9 _ -), else raise `Permanent`."""
    if not TOKEN.fullmatch(text):
        msg = f"{text!r} is no name: one has 1 to 64 of the characters A-Z, a-z, 0-9, '_' and '-'"
        raise Permanent(msg)
    return text


def shard_of(rollout_id: str, shards: int) -> int:
    """Return the shard that holds `rollout_id` in a run of `shards` shards."""
    if shards == 1:
        return 0
    return int.from_bytes(hashlib.sha256(rollout_id.encode()).digest()[:4]) % shards


@dataclass(frozen=True, slots=True)
class AggregateId:
    """Who writes about what: everything under `prefix` has one writer at a time."""

    shard: int
    run_id: str
    rollout_id: str
    actor: str
    key: str

    @property
    def prefix(self) -> str:
        """Return the subject prefix of the aggregate, without a trailing dot."""
        return f"{EVENTS}{self.shard}.{self.run_id}.{self.rollout_id}.{self.actor}.{self.key}"

    @property
    def rollout(self) -> tuple[str, str]:
        """Return what rollout (or run) it belongs to."""
        return self.run_id, self.rollout_id

    @property
    def label(self) -> str:
        """Return the name by which a machine of this aggregate can be found."""
        return f"{self.run_id}.{self.rollout_id}.{self.key}"

    def sibling(self, actor: str, key: str) -> AggregateId:
        """Return another aggregate of the same rollout."""
        return AggregateId(self.shard, self.run_id, self.rollout_id, actor, key)


def aggregate(run_id: str, rollout_id: str, actor: str, key: str, shards: int = 1) -> AggregateId:
    """Return the aggregate of checked tokens."""
    return AggregateId(shard_of(rollout_id, shards), token(run_id), token(rollout_id), token(actor), token(key))


def rollout_pattern(shard: int, run_id: str, rollout_id: str) -> str:
    """Return the pattern of everything ever said about one rollout."""
    return f"{EVENTS}{shard}.{run_id}.{rollout_id}.>"


def run_aggregate(run_id: str, shards: int = 1) -> AggregateId:
    """Return the aggregate of a run itself."""
    return aggregate(run_id, RUN_LEVEL, "collector", "_", shards)


def event_subject(aggregate_id: AggregateId, kind: str) -> str:
    """Return the subject of a fact."""
    return f"{aggregate_id.prefix}.{kind}"


def request_subject(aggregate_id: AggregateId, to: str, place: str) -> str:
    """Return the subject of a request to the kind `to` at `place`."""
    return f"{aggregate_id.prefix}.{CMD}.{to}.{place}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A subject taken apart; `place` and `to` are set for requests only."""

    aggregate: AggregateId
    kind: str
    to: str | None = None
    place: str | None = None


def parse_event(subject: str) -> Parsed:
    """Take an event's subject (stored or live) apart; raises `Permanent` for anything else."""
    parts = subject.split(".")
    is_ours = len(parts) >= FACT_TOKENS and parts[0] == "gym" and parts[1] in {"evt", "live"}
    if is_ours and parts[2].isascii() and parts[2].isdigit():
        if len(parts) == FACT_TOKENS:
            return Parsed(AggregateId(int(parts[2]), parts[3], parts[4], parts[5], parts[6]), parts[7])
        if len(parts) == REQUEST_TOKENS and parts[7] == CMD:
            return Parsed(AggregateId(int(parts[2]), parts[3], parts[4], parts[5], parts[6]), CMD, parts[8], parts[9])
    msg = f"{subject!r} is not the subject of an event"
    raise Permanent(msg)


def event_subject_of_queued(subject: str) -> str:
    """Return the event subject of a request found in its queue under `subject`."""
    _, _, to, place, shard, run, rollout, actor, key = subject.split(".")
    return f"{EVENTS}{shard}.{run}.{rollout}.{actor}.{key}.{CMD}.{to}.{place}"


def queue_subject_of_event(subject: str) -> str:
    """Return where the server moves the request stored under `subject`."""
    _, _, shard, run, rollout, actor, key, _, to, place = subject.split(".")
    return f"{QUEUES}{to}.{place}.{shard}.{run}.{rollout}.{actor}.{key}"


def matches(pattern: str, subject: str) -> bool:
    """Say whether a NATS pattern (`*` one token, `>` the rest) covers `subject`."""
    wanted, given = pattern.split("."), subject.split(".")
    for i, part in enumerate(wanted):
        if part == ">":
            return len(given) > i
        if i >= len(given) or part not in {"*", given[i]}:
            return False
    return len(wanted) == len(given)
