"""`gym-bus bus status`: what the server, the processes and the projector say of themselves."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli.eval_status import processes_of
from gym_bus.cli.lazy import FAILED, OK
from gym_bus.cli.tables import print_table
from gym_bus.client import ProjectorSilent, QueryFailed, connect_cli, find_address, query
from gym_bus.nats_bus import connect
from gym_bus.server import EmbeddedServer
from gym_bus.topology import ADMIN, event_stream, queue_stream
from schemas.ids import WORKER_KINDS

if TYPE_CHECKING:
    from gym_bus.nats_bus import NatsBus
    from gym_bus.settings import Settings

LISTEN_MARGIN_S: Final = 0.3


async def show_bus(settings: Settings, *, as_json: bool) -> int:
    """Do `gym-bus bus status`; the exit code is 1 if no bus runs."""
    facts: dict[str, Any] = {"data_dir": str(settings.data_dir), **processes_of(settings)}
    address = find_address(settings)
    if address is None:
        facts["server"] = "not running"
    else:
        facts["server"] = {"url": address.url, "pid": address.pid}
        if not settings.bus_url:
            is_well, said = EmbeddedServer(settings.data_dir / "bus").health()
            facts["server"].update(is_well=is_well, said=said)
        user = ADMIN if ADMIN in address.passwords else "cli"
        async with connect(address.url, user, address.passwords.get(user)) as bus:
            facts["streams"] = [await _stream(bus, name) for name in _streams()]
            facts["queues"] = [row for kind in WORKER_KINDS for row in await _consumers(bus, queue_stream(kind))]
            facts["hosts"] = await _hosts(bus, settings.heartbeat_s + LISTEN_MARGIN_S)
        facts["projector"] = await _projector(settings)
    if as_json:
        print(json.dumps(facts))
    else:
        _print(facts)
    return FAILED if address is None else OK


def _streams() -> list[str]:
    return [event_stream(0), *(queue_stream(kind) for kind in WORKER_KINDS)]


async def _stream(bus: NatsBus, name: str) -> dict[str, Any]:
    answer = await bus.api(f"STREAM.INFO.{name}")
    if "error" in answer:
        return {
            "stream": name,
            "messages": None,
            "bytes": None,
            "max_bytes": None,
            "said": answer["error"]["description"],
        }
    state, config = answer["state"], answer["config"]
    return {"stream": name, "messages": state["messages"], "bytes": state["bytes"], "max_bytes": config["max_bytes"]}


async def _consumers(bus: NatsBus, stream: str) -> list[dict[str, Any]]:
    answer = await bus.api(f"CONSUMER.LIST.{stream}", {"offset": 0})
    return [
        {
            "queue": stream,
            "place": consumer["name"],
            "pending": consumer["num_pending"],
            "in_hand": consumer["num_ack_pending"],
            "redelivered": consumer["num_redelivered"],
        }
        for consumer in answer.get("consumers") or []
    ]


async def _hosts(bus: NatsBus, seconds: float) -> list[str]:
    """Return the hosts whose heartbeat is heard within one interval."""
    heard: set[str] = set()

    def on_told(_: str, body: bytes) -> None:
        text = body.decode(errors="replace")
        if not text.startswith("gone "):
            heard.add(text)

    async with bus.hear("gym.hb.>", on_told):
        await asyncio.sleep(seconds)
    return sorted(heard)


async def _projector(settings: Settings) -> dict[str, Any]:
    try:
        async with connect_cli(settings) as bus:
            answer = await query(bus, "SELECT count(*) FROM events", timeout_s=5)
    except (ProjectorSilent, QueryFailed) as error:
        return {"state": "silent", "said": str(error)}
    return {"state": "answers", "events": answer.rows[0][0], "cursor": answer.cursor, "lag": answer.lag}


def _print(facts: dict[str, Any]) -> None:
    server = facts["server"]
    if isinstance(server, str):
        print(f"server: {server} (`gym-bus bus up` starts it)\nsupervisor: {facts['supervisor']}")
        return
    print(f"server: {server['url']}, pid {server['pid']}, {server.get('said', '')}\nsupervisor: {facts['supervisor']}")
    store = facts["store"]
    print(f"store: {store['state']}{': ' + str(store['reason']) if store.get('reason') else ''}")
    print(f"hosts alive: {', '.join(facts['hosts']) or 'none'}")
    projector = facts["projector"]
    said = projector.get("said") or f"{projector['events']:,} events, {projector['lag'] or 0:,} behind"
    print(f"projector: {projector['state']}: {said}\n")
    print_table(("stream", "messages", "bytes", "max_bytes"), [list(row.values())[:4] for row in facts["streams"]])
    print()
    print_table(
        ("queue", "place", "pending", "in_hand", "redelivered"), [list(row.values()) for row in facts["queues"]]
    )
    for name, process in (facts.get("processes") or {}).items():
        print(f"process {name}: {process['state']}, pid {process['pid']}, started again {process['restarts']} times")
