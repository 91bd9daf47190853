"""Creating what the bus must hold, and checking what it holds already.

Limits may be migrated; a difference in retention, subjects, storage or sources is an error, because the server would either refuse it
or silently mean something else by the same name.
"""

from __future__ import annotations

from typing import Any, Final

import structlog

from gym_bus.errors import BusUnavailable, Corrupt, Permanent
from gym_bus.nats_bus import NatsBus
from gym_bus.topology import (
    consumer_config,
    consumer_of,
    event_stream,
    event_stream_config,
    queue_stream,
    queue_stream_config,
)
from schemas.ids import WORKER_KINDS

log = structlog.get_logger(__name__)

FIXED: Final = ("subjects", "retention", "storage", "sources", "republish", "deny_delete")
NOT_FOUND: Final = 10059
MAX_ACK_PENDING: Final = 20_000


def _error(answer: dict[str, Any]) -> tuple[int, str] | None:
    error = answer.get("error")
    return (int(error.get("err_code", 0)), str(error.get("description", ""))) if error else None


def differences(wanted: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return the fixed settings in which a stored configuration differs from the wanted one, in words."""
    lines = []
    for key in FIXED:
        want: Any = wanted.get(key)
        have: Any = found.get(key)
        if key == "sources":
            want = sorted(s["name"] for s in want or [])
            have = sorted(s["name"] for s in have or [])
        if key == "republish":
            want, have = (want or {}).get("dest"), (have or {}).get("dest")
        if (want or None) != (have or None):
            lines.append(f"{key}: wanted {want!r}, found {have!r}")
    return lines


async def ensure_stream(bus: NatsBus, wanted: dict[str, Any]) -> bool:
    """Create the stream, or check and migrate it; return whether it is new. Raises `Permanent` on a fixed difference."""
    name = wanted["name"]
    answer = await bus.api(f"STREAM.INFO.{name}")
    error = _error(answer)
    if error and error[0] == NOT_FOUND:
        made = await bus.api(f"STREAM.CREATE.{name}", wanted)
        if failed := _error(made):
            msg = f"stream {name} could not be created: {failed[1]}"
            raise Permanent(msg)
        return True
    if error:
        msg = f"stream {name} cannot be read: {error[1]}"
        raise BusUnavailable(msg)
    found = answer["config"]
    if lines := differences(wanted, found):
        msg = (
            f"stream {name} exists with another meaning ({'; '.join(lines)}): use another data directory or server, "
            f"or export and remove the stream first"
        )
        raise Permanent(msg)
    if wanted.get("max_bytes", found.get("max_bytes")) != found.get("max_bytes"):
        changed = await bus.api(f"STREAM.UPDATE.{name}", {**found, "max_bytes": wanted["max_bytes"]})
        if failed := _error(changed):
            log.warning("stream_limit_kept", stream=name, reason=failed[1])
    return False


async def ensure_consumer(bus: NatsBus, kind: str, place: str, ack_wait_s: float) -> None:
    """Create or update the durable consumer of `kind` at `place`."""
    stream, name = queue_stream(kind), consumer_of(place)
    wanted = consumer_config(kind, place, ack_wait_s, MAX_ACK_PENDING)
    answer = await bus.api(f"CONSUMER.CREATE.{stream}.{name}.{wanted['filter_subject']}", {
        "stream_name": stream, "config": {**wanted, "name": name}, "action": "",
    })  # fmt: skip
    if failed := _error(answer):
        msg = f"consumer {name} of {stream} could not be made: {failed[1]}"
        raise Permanent(msg)


async def places_of(bus: NatsBus, kind: str) -> list[str]:
    """Return the names of all durable consumers of `kind`."""
    answer = await bus.api(f"CONSUMER.NAMES.{queue_stream(kind)}", {"offset": 0})
    return list(answer.get("consumers") or [])


async def provision(
    bus: NatsBus, *, shards: int, max_bytes: int, ack_wait_s: float, rebuild_queues: bool = False
) -> None:
    """Create and check every stream, queue and shared consumer; safe to repeat.

    A queue that is missing beside a log that is not empty is an error unless `rebuild_queues`: re-created, it hands out all
    history again (answered requests are recognised, but every one is delivered once more).
    """
    is_log_empty = True
    for shard in range(shards):
        await ensure_stream(bus, event_stream_config(shard, max_bytes))
        info = await bus.api(f"STREAM.INFO.{event_stream(shard)}")
        is_log_empty = is_log_empty and info["state"]["messages"] == 0
    for kind in WORKER_KINDS:
        missing = _error(await bus.api(f"STREAM.INFO.{queue_stream(kind)}"))
        if missing and missing[0] == NOT_FOUND and not is_log_empty and not rebuild_queues:
            msg = (
                f"queue {queue_stream(kind)} is missing although the log is not empty; `gym-bus bus up --rebuild-queues` makes it "
                f"again and hands out every request of the log once more (answered ones are recognised and dropped)"
            )
            raise Corrupt(msg)
        await ensure_stream(bus, queue_stream_config(kind, shards))
        for place in ("any", "ctl"):
            await ensure_consumer(bus, kind, place, ack_wait_s)
