"""What a kill costs: everything at once, in the middle of a run; and one host of two, until the other takes over."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Final

from gym_bus.bus import Stored
from gym_bus.client import connect_cli, open_log
from gym_bus.runtime.presence import host_of
from gym_bus.server import EmbeddedServer
from gym_bus.settings import load_settings
from gym_bus.subjects import parse_event
from schemas.sandboxes import Inline
from tests.bench.command_line import eval_command, run_arguments
from tests.bench.ledger import asked_again, read_calls, read_ledger, repaid
from tests.bench.processes import kill_all
from tests.bench.stage import RUN, Stage, data_directory, run_config, stage, until

ROLLOUTS: Final = 1_000
CALLS_A_ROLLOUT: Final = 2
IN_FLIGHT: Final = 64


async def measure_kill_all(*, quick: bool) -> dict[str, float]:
    """Kill every process at half of 1,000 rollouts, `eval resume`, and compare the calls made with the log."""
    size = 300 if quick else ROLLOUTS
    async with data_directory() as data_dir:
        settings = load_settings({"GYM_BUS_DATA_DIR": str(data_dir)})
        ledger = data_dir / "ledger.jsonl"
        model = ("model.latency_s=0.05", "model.latency_spread=0.5", f"model.ledger_path={ledger}")
        eval_command(data_dir, "run", *run_arguments(data_dir, size, IN_FLIGHT), *model, "--detach")
        done = 0

        def count(_: Stored) -> None:
            nonlocal done
            done += 1

        async with connect_cli(settings) as bus, bus.listen(f"gym.live.*.{RUN}.*.collector._.rollout_finished", count):
            await until(lambda: done >= size // 2, 100)
            kill_all(data_dir)
        made_at_kill = len(read_ledger(ledger))
        EmbeddedServer(data_dir / "bus").ensure()
        async with connect_cli(settings) as bus:
            before = await read_calls(open_log(bus, settings), RUN)
            last = (await bus.api("STREAM.INFO.GYM_EVT_0"))["state"]["last_seq"]
        began = time.monotonic()
        eval_command(data_dir, "resume", RUN)
        resumed_s = time.monotonic() - began
        async with connect_cli(settings) as bus:
            log = open_log(bus, settings)
            calls = await read_calls(log, RUN)
            finished: Any = await log.last(f"gym.evt.0.{RUN}._.collector._.run_finished")
        if finished.data.scored != size:
            msg = f"the run did not go as it should: {finished.data}"
            raise RuntimeError(msg)
        made = read_ledger(ledger)
        return {
            "answers_asked_again": asked_again(calls, made, made_at_kill, last),
            "calls_repaid": repaid(calls, made),
            "calls_in_flight_at_kill": len({t for t, _ in before.asked.values()} - set(before.answered)),
            "calls_wasted": len(made) - CALLS_A_ROLLOUT * size,
            "calls_of_later_attempts": sum(calls.asked[call_id][0][1] > 1 for call_id in made),
            "calls_of_extra_turns": sum(calls.asked[call_id][0][2] > CALLS_A_ROLLOUT for call_id in made),
            "resume_s": resumed_s,
        }


class _Owners:
    """Who has claimed what, and when the first claim after a kill took something from the killed host."""

    def __init__(self) -> None:
        self.owner: dict[tuple[Any, ...], str] = {}
        self.killed: str | None = None
        self.taken_at: dict[str, float] = {}

    def heard(self, stored: Stored) -> None:
        """Take in a claim."""
        where = parse_event(stored.subject).aggregate
        worker = stored.body.partition(b'"worker":"')[2].partition(b'"')[0].decode()
        key = (where.rollout_id, where.actor, where.key)
        before, self.owner[key] = self.owner.get(key), host_of(worker)
        if self.killed and before == self.killed and host_of(worker) != self.killed:
            self.taken_at.setdefault("first", time.monotonic())
            self.taken_at.setdefault("run" if where.rollout_id == "_" else "rollout", time.monotonic())


async def measure_takeover(*, quick: bool) -> dict[str, float]:
    """Two hosts; the one that owns the run is killed; the time until the other claims what it had."""
    size = 1_000 if quick else 1_500
    async with stage(hosts=2, extra={"GYM_BUS_ACK_WAIT_S": "2", "GYM_BUS_LEASE_S": "2"}) as on:
        owners = _Owners()
        async with on.cli.listen("gym.live.>", lambda stored: _claims(owners, stored)):
            await on.request(run_config(size, IN_FLIGHT, Inline(), latency_s=0.4, latency_spread=0.5))
            await until(lambda: sum(key[1] == "harness" for key in owners.owner) > 2 * IN_FLIGHT, 60)
            owners.killed = owners.owner["_", "collector", "_"]
            began = time.monotonic()
            _kill_host(on, owners.killed)
            await until(lambda: len(owners.taken_at) == 3, 60)
        return {
            "takeover_s": owners.taken_at["first"] - began,
            "takeover_run_s": owners.taken_at["run"] - began,
            "takeover_rollout_s": owners.taken_at["rollout"] - began,
        }


def _claims(owners: _Owners, stored: Stored) -> None:
    if stored.subject.endswith(".claim"):
        owners.heard(stored)


def _kill_host(on: Stage, host_id: str) -> None:
    os.kill(on.children[host_id].pid, signal.SIGKILL)
    on.children[host_id].wait()
