"""Asking for the gateway of a data directory, waiting for it, looking at it, and giving it up."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli.bus_down import MARGIN_S, end_holder
from gym_bus.cli.eval_status import processes_of
from gym_bus.cli.lazy import FAILED, OK
from gym_bus.cli.setup import await_up, start_supervisor
from gym_bus.errors import Retryable
from gym_bus.gateway_file import GATEWAY, SOCKET_FILE, GatewayAddress, accepts, gateway_directory, read_address
from gym_bus.kept_gateway import ask_for_gateway, give_up_gateway, is_gateway_wanted
from gym_bus.kept_process import owner_pid
from gym_bus.status_file import host_lock, logs_dir

if TYPE_CHECKING:
    from gym_bus.settings import Settings

UP_WITHIN_S: Final = 60.0
POLL_S: Final = 0.05
FALLS_MAX: Final = 2
"""A gateway that has fallen over by itself so often while it is waited for will do so again."""
LOG_READ_BYTES: Final = 64 * 1024


async def gateway_up(settings: Settings) -> GatewayAddress:
    """Ask for a gateway, with all that it needs, and return where it listens.

    Raises `Retryable` with the reason if none comes up; then none is wanted any more that was not before.
    """
    was_wanted = is_gateway_wanted(settings.data_dir)
    ask_for_gateway(settings.data_dir)
    try:
        start_supervisor(settings)
        return await _await_gateway(settings, _restarts(await await_up(settings)))
    except Retryable:
        if not was_wanted:
            give_up_gateway(settings.data_dir)
        raise


async def _await_gateway(settings: Settings, before: int) -> GatewayAddress:
    directory = gateway_directory(settings.data_dir)
    deadline = time.monotonic() + UP_WITHIN_S
    while not (await accepts(directory / SOCKET_FILE) and (address := read_address(directory))):
        has_fallen = _restarts(processes_of(settings)) - before >= FALLS_MAX
        if has_fallen or time.monotonic() > deadline:
            log_path = logs_dir(settings.data_dir) / f"{GATEWAY}.log"
            how = (
                f"ends again and again: {reason_in(log_path)}" if has_fallen else f"is not up after {UP_WITHIN_S:.0f} s"
            )
            msg = f"the gateway {how} (see {log_path})"
            raise Retryable(msg)
        await asyncio.sleep(POLL_S)
    return address


async def gateway_down(settings: Settings) -> bool:
    """Give the gateway up, whoever keeps it, and wait for its end; return whether there was one. Raises `Retryable` if it stays."""
    give_up_gateway(settings.data_dir)
    return await end_holder(host_lock(settings.data_dir, GATEWAY), settings.drain_s + MARGIN_S)


async def show_gateway(settings: Settings, *, as_json: bool) -> int:
    """Do `gym-bus gateway status`."""
    directory = gateway_directory(settings.data_dir)
    address = read_address(directory) if await accepts(directory / SOCKET_FILE) else None
    around = processes_of(settings)
    process = (around.get("processes") or {}).get(GATEWAY, {})
    facts: dict[str, Any] = {
        "state": "running" if address else "not running",
        "is_wanted": is_gateway_wanted(settings.data_dir),
        "pid": owner_pid(host_lock(settings.data_dir, GATEWAY)),
        **{name: getattr(address, name, None) for name in ("url", "socket", "remote_url")},
        "restarts": process.get("restarts"),
        "supervisor": around["supervisor"],
    }
    print(json.dumps(facts) if as_json else "\n".join(_lines(facts)))
    return OK if address else FAILED


def shown_address(settings: Settings, address: GatewayAddress) -> str:
    """Return what a person is told of a gateway that has come up."""
    lines = [f"the gateway is up at {address.url}, and at the unix socket {address.socket}"]
    if address.remote_url:
        lines.append(f"sandboxes elsewhere reach it at {address.remote_url}")
    elif settings.default_host:
        lines.append("it was started without GYM_BUS_DEFAULT_HOST: `gym-bus bus down`, then again")
    return "\n".join(lines)


def _lines(facts: dict[str, Any]) -> list[str]:
    if facts["state"] != "running":
        wanted = "asked for, and not there yet" if facts["is_wanted"] else "`gym-bus gateway up` starts one"
        return [f"gateway: not running ({wanted})", f"supervisor: {facts['supervisor']}"]
    kept = "kept by the supervisor" if facts["restarts"] is not None else "not kept: it was started by hand"
    if facts["is_wanted"] and facts["restarts"] is None:
        kept = "asked for, and nobody keeps it now"
    return [
        f"gateway: running, pid {facts['pid']}, {kept}",
        f"url: {facts['url']}",
        f"socket: {facts['socket']}",
        f"for sandboxes elsewhere: {facts['remote_url'] or 'no address (GYM_BUS_DEFAULT_HOST is not set)'}",
        f"supervisor: {facts['supervisor']}",
    ]


def _restarts(status: dict[str, Any]) -> int:
    return int((status.get("processes") or {}).get(GATEWAY, {}).get("restarts") or 0)


def reason_in(log_path: Path) -> str:
    """Return the last reason that a gateway gave for its end."""
    try:
        tail = log_path.read_bytes()[-LOG_READ_BYTES:].decode(errors="replace")
    except OSError:
        return "it left no word"
    for line in reversed(tail.splitlines()):
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("event") == "host_failed":
            return str(said.get("reason"))
    return "it left no word"
