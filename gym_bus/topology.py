"""Streams, queues, users and their rights, as data. `gym_bus.provision` creates and checks them.

Every kind of actor has its own bus user, which may write facts of its own kind, send requests to the kinds listed in `MAY_ASK`,
take from its own queue and read the log. Reads cannot be limited by subject when they go in batches, so actors can read each other's
events; what an agent must not see is kept away from agents, not from actors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from schemas.ids import WORKER_KINDS

EVENT_STREAM: Final = "GYM_EVT_"
QUEUE_STREAM: Final = "GYM_CMD_"
MAX_PAYLOAD: Final = 1024 * 1024
FULL_SHARE: Final = 0.9
"""From this share of an event stream's limit on nothing new starts; the rest is for what is under way."""

MAY_ASK: Final[Mapping[str, tuple[str, ...]]] = {
    "cli": ("collector", "harness", "sandbox", "verifier"),  # the last three: parked requests, driven again
    "collector": ("harness", "verifier"),
    "harness": ("sandbox", "verifier"),
    "model": ("verifier",),
    "sandbox": (),
    "verifier": ("sandbox",),
    "trainer": (),
    "projector": (),
}
HEARS: Final[Mapping[str, tuple[str, ...]]] = {
    "cli": (),
    "collector": ("harness", "verifier"),
    "harness": ("sandbox", "verifier", "collector", "cli"),
    "model": ("verifier",),
    "sandbox": ("harness",),
    "verifier": ("sandbox",),
    "trainer": ("collector",),
    "projector": (),
}
USERS: Final = tuple(MAY_ASK)
ADMIN: Final = "admin"


def event_stream(shard: int) -> str:
    """Return the name of the stream of `shard`."""
    return f"{EVENT_STREAM}{shard}"


def queue_stream(kind: str) -> str:
    """Return the name of the queue of `kind`."""
    return f"{QUEUE_STREAM}{kind.upper()}"


def consumer_of(place: str) -> str:
    """Return the name of the durable consumer for `place` (`any`, `ctl` or a host id)."""
    return place if place in {"any", "ctl"} else f"at-{place}"


def place_of(consumer: str) -> str:
    """Return the place of a consumer's name."""
    return consumer.removeprefix("at-")


def inbox_prefix(user: str) -> str:
    """Return the inbox prefix that only `user` may subscribe to."""
    return f"_INBOX_{user}"


def event_stream_config(shard: int, max_bytes: int) -> dict[str, object]:
    """Return the wanted configuration of an event stream, in the server's own terms."""
    return {
        "name": event_stream(shard),
        "subjects": [f"gym.evt.{shard}.>"],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_bytes": max_bytes,
        "compression": "s2",
        "deny_delete": True,
        "allow_direct": True,
        "num_replicas": 1,
        "max_consumers": 256,
        "duplicate_window": 120_000_000_000,
        "republish": {"src": f"gym.evt.{shard}.>", "dest": f"gym.live.{shard}.>"},
    }


def queue_stream_config(kind: str, shards: int) -> dict[str, object]:
    """Return the wanted configuration of a queue: the server itself moves requests into it out of the log."""
    transform = {
        "src": f"gym.evt.*.*.*.*.*.cmd.{kind}.*",
        "dest": f"gym.cmd.{kind}.{{{{wildcard(6)}}}}."
        "{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}.{{wildcard(4)}}.{{wildcard(5)}}",
    }
    return {
        "name": queue_stream(kind),
        "retention": "workqueue",
        "storage": "file",
        "discard": "new",
        "allow_direct": True,
        "num_replicas": 1,
        "max_consumers": 1024,
        "duplicate_window": 120_000_000_000,
        "sources": [{"name": event_stream(s), "subject_transforms": [transform]} for s in range(shards)],
    }


def consumer_config(kind: str, place: str, ack_wait_s: float, max_ack_pending: int) -> dict[str, object]:
    """Return the wanted configuration of the durable consumer of `kind` at `place`."""
    return {
        "durable_name": consumer_of(place),
        "filter_subject": f"gym.cmd.{kind}.{place}.>",
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_wait": int(ack_wait_s * 1e9),
        "max_deliver": -1,
        "max_ack_pending": max_ack_pending,
        "max_waiting": 512,
    }


def rights(user: str, shards: int = 1) -> dict[str, list[str]]:
    """Return the subjects `user` may publish and subscribe to."""
    streams = [event_stream(shard) for shard in range(shards)]
    publish = [f"$JS.API.{call}.{stream}" for call in ("DIRECT.GET", "STREAM.INFO") for stream in streams]
    subscribe = [f"{inbox_prefix(user)}.>", "gym.hb.>"]
    if user == "projector":
        for stream in streams:
            publish += [f"$JS.API.CONSUMER.{call}.{stream}.>" for call in ("CREATE", "DELETE", "INFO", "MSG.NEXT")]
            publish.append(f"$JS.ACK.{stream}.>")
        publish += ["$JS.API.STREAM.NAMES", "$JS.FC.>", "gym.hb.projector.>", "_INBOX_cli.>"]
        return {"publish": publish, "subscribe": [*subscribe, "gym.query", "gym.export"]}
    publish.append(f"gym.evt.*.*.*.{user}.*.*")
    publish += [f"gym.evt.*.*.*.{user}.*.cmd.{to}.*" for to in MAY_ASK[user]]
    if user == "model":
        publish.append("gym.hb.model.>")
    if user in WORKER_KINDS:
        queue = queue_stream(user)
        publish += [
            f"$JS.API.CONSUMER.MSG.NEXT.{queue}.*",
            f"$JS.API.CONSUMER.INFO.{queue}.*",
            f"$JS.API.CONSUMER.NAMES.{queue}",
            f"$JS.API.CONSUMER.CREATE.{queue}.*.gym.cmd.{user}.*.>",
            f"$JS.API.CONSUMER.DURABLE.CREATE.{queue}.*",
            f"$JS.ACK.{queue}.>",
            f"$JS.ACK.*.*.{queue}.>",
            f"gym.hb.{user}.>",
        ]
    if user == "cli":
        publish += ["gym.query", "gym.export"]
        subscribe.append("gym.live.>")
    subscribe += [f"gym.live.*.*.*.{kind}.>" for kind in HEARS[user]]
    return {"publish": publish, "subscribe": subscribe}
