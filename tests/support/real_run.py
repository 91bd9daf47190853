"""A run of real processes: command line, supervisor, host, projector and server, in a data directory of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gym_bus.blobs import DirectoryBlobs
from gym_bus.codec import Codec
from gym_bus.nats_bus import connect
from gym_bus.server import EmbeddedServer
from schemas.envelope import Envelope
from tests.support.engine import IMAGE, USER

REPOSITORY = Path(__file__).resolve().parents[2]
_SANDBOXES = {"docker": {"image": IMAGE, "user": USER}}
DEADLINE_S = 90.0


@dataclass
class RealRun:
    """One run and everything that runs it; `stop` leaves no process behind."""

    directory: Path
    environ: dict[str, str] = field(default_factory=dict)
    run_id: str = f"r{os.getpid()}"

    @property
    def data_dir(self) -> Path:
        """Return the data directory."""
        return self.directory / "data"

    @property
    def ledger(self) -> Path:
        """Return the outside ledger."""
        return self.directory / "ledger"

    def env(self) -> dict[str, str]:
        """Return the environment of all processes: short leases, no settings of the machine."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GYM_BUS_")}
        return {
            **kept,
            "GYM_BUS_DATA_DIR": str(self.data_dir),
            "GYM_BUS_ACK_WAIT_S": "2",
            "GYM_BUS_LEASE_S": "1.5",
            "GYM_BUS_REREAD_S": "1",
            "PYTHONPATH": str(REPOSITORY),
            **self.environ,
        }

    def cli(self, *arguments: str, timeout_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "gym_bus.cli", *arguments],
            env=self.env(),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def spawn(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "gym_bus.cli", *arguments],
            env=self.env(),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def arguments(
        self,
        *more: str,
        sandbox: str = "inline",
        size: int = 4,
        repeats: int = 3,
        latency_s: float = 0.05,
        padding: str = "",
    ) -> list[str]:
        """Return the arguments of a small run with a ledger; every question ends with `padding`."""
        config, tasks = self.directory / "run.yaml", self.directory / "sums.jsonl"
        rows = [
            {"id": f"sum-{i}", "question": f"What is {i} + {7 * i}?{padding}", "answer": str(8 * i)}
            for i in range(size)
        ]
        tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
        config.write_text(
            json.dumps(
                {
                    "taskset": {"type": "jsonl", "jsonl_fpath": str(tasks), "name": "sums"},
                    "model": {
                        "type": "scripted",
                        "error_rate": 0.3,
                        "latency_s": latency_s,
                        "ledger_path": str(self.ledger),
                    },
                    "sandbox": {"type": sandbox, "ledger_path": str(self.ledger), **_SANDBOXES.get(sandbox, {})},
                    "num_repeats": repeats,
                    "num_samples_in_parallel": 6,
                    "retries": {"backoff_s": 0.2},
                }
            )
        )
        out = str(self.directory / "out")
        return ["eval", "run", "--config", str(config), "--run-id", self.run_id, "--output", out, *more]

    def pids(self) -> list[int]:
        """Return every process of this data directory."""
        mark = f"GYM_BUS_DATA_DIR={self.data_dir}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "environ").read_bytes().split(b"\0")
                    line = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if mark in words or (b"nats-server" in line and str(self.data_dir).encode() in line):
                    found.append(int(entry.name))
        return found

    def kill_everything(self) -> int:
        """SIGKILL every process of this data directory, and wait until none is left; return how many there were."""
        victims: set[int] = set()
        until = time.monotonic() + DEADLINE_S
        while found := self.pids():  # what was just started, and what takes a moment to die
            assert time.monotonic() < until, f"{found} do not die"
            victims |= set(found)
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        return len(victims)

    def stop(self) -> None:
        """End everything, politely first."""
        try:
            self.cli("bus", "down", timeout_s=40)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self.kill_everything()

    def events(self) -> list[Envelope]:
        """Return the whole log; the server must be up."""
        return asyncio.run(self._events())

    async def _events(self) -> list[Envelope]:
        address = EmbeddedServer(self.data_dir / "bus").address()
        assert address is not None, "the bus is down"
        codec = Codec(DirectoryBlobs(self.data_dir / "blobs"))
        async with connect(address.url, "admin", address.passwords["admin"]) as bus:
            return [codec.decode(s.subject, s.body, s.sequence) async for s in bus.read("gym.evt.0.>")]

    def wait_for_calls(self, count: int) -> None:
        """Wait until the ledger has `count` lines."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if self.ledger.exists() and self.ledger.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.01)
        msg = f"the ledger never got {count} lines"
        raise AssertionError(msg)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of rollouts.jsonl."""
        text = (self.directory / "out" / "rollouts.jsonl").read_text()
        return [json.loads(line) for line in text.split("\n") if line]
