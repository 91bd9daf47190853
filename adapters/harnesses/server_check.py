"""`server_check.py FILE PROGRAM …`: becomes the program, once each server that FILE names was reached and has listed its tools.

Carried into the machine as text, for Python 3.8 or newer. One that cannot be reached ends it with exit code 78 and a line that says
which, and why: the program was never begun then, and has asked no model anything.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

UNREACHED = 78
SAID = "gym-bus: a required server of tools"
VERSION = "2025-06-18"
PAUSE_S = 0.3
ENDS_WITHIN_S = 1.0
ANSWER_MAX_BYTES = 8 * 1024 * 1024
LATE = "it did not answer in time"
AWAY = (502, 503, 504)
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "gym-bus", "version": "1"}}


class Unreached(Exception):
    """A server did not answer as one does; the message says how."""


class Away(Unreached):
    """A server is not there, or not yet."""


@contextmanager
def ended_at(until: float) -> Generator[None, None, None]:
    """Raise `Unreached` in whatever is done when it is time, however its parts come in."""

    def late(*_: object) -> None:
        raise Unreached(LATE)

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(until - time.monotonic(), PAUSE_S), PAUSE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def parsed(text: str | bytes) -> Any:
    """Return what JSON says; None for what is none, or is too deep to be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def asked(number: int, method: str) -> dict[str, Any]:
    """Return a message that wants an answer."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": HELLO if method == "initialize" else {}}


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def result_of(answer: dict[str, Any]) -> dict[str, Any]:
    """Return what an answer holds; raises `Unreached` for a refusal."""
    if not isinstance(answer.get("result"), dict):
        raise Unreached(f"it answered {json.dumps(answer.get('error'))[:300]}")
    found: dict[str, Any] = answer["result"]
    return found


def check_listed(answer: dict[str, Any]) -> None:
    """Raise `Unreached` if an answer lists no tools."""
    if not isinstance(result_of(answer).get("tools"), list):
        raise Unreached("it did not list its tools")


class OverHttp:
    """A server at an address."""

    def __init__(self, url: str, headers: dict[str, str], until: float) -> None:
        self.url, self.until = url, until
        self.headers = {
            **headers,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

    def check(self) -> None:
        """Say hello, and have the tools listed."""
        self.ask(asked(1, "initialize"))
        self.headers["mcp-protocol-version"] = VERSION
        self.send(INITIALIZED)
        check_listed(self.ask(asked(2, "tools/list")))
        if "mcp-session-id" in self.headers:
            with suppress(Unreached, OSError):
                self.send(None, "DELETE")

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message."""
        answer = parsed(self.send(message, wanted=message["id"]))
        if not isinstance(answer, dict) or answer.get("id") != message["id"]:
            raise Unreached("its answer is none of MCP's")
        result_of(answer)
        return answer

    def send(self, message: dict[str, Any] | None, method: str = "POST", wanted: int | None = None) -> str:
        """Return what is answered, as text; of a stream of events the data of the one that answers `wanted`."""
        body = None if message is None else json.dumps(message).encode()
        request = urllib.request.Request(self.url, data=body, headers=self.headers, method=method)  # noqa: S310
        try:
            with ended_at(self.until), urllib.request.urlopen(request, timeout=self.left_s) as answer:  # noqa: S310
                if answer.headers.get("mcp-session-id"):
                    self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
                if "text/event-stream" in (answer.headers.get("content-type") or ""):
                    return self.event(answer, wanted)
                said: str = answer.read(ANSWER_MAX_BYTES).decode("utf-8-sig", "replace")
                return said
        except urllib.error.HTTPError as error:
            with ended_at(self.until):
                words = f"HTTP {error.code}: {error.read(300).decode(errors='replace')}"
            raise (Away if error.code in AWAY else Unreached)(words) from error
        except (OSError, http.client.HTTPException) as error:
            raise Away(str(getattr(error, "reason", error))) from error

    @property
    def left_s(self) -> float:
        """Return how long is left."""
        return max(self.until - time.monotonic(), 0.1)

    def event(self, stream: Any, wanted: int | None) -> str:
        """Return the data of the event that answers `wanted`, empty if none does: others come before it, and the stream may go on."""
        data: list[str] = []
        size = 0
        while wanted is not None and size < ANSWER_MAX_BYTES and time.monotonic() < self.until:
            line = stream.readline(ANSWER_MAX_BYTES).decode(errors="replace")
            size += len(line)
            if line.startswith("data:"):
                data.append(line[len("data:") :])
            elif not line.strip():  # an event's end, or the stream's
                answer = parsed("".join(data))
                if isinstance(answer, dict) and answer.get("id") == wanted:
                    return "".join(data)
                data.clear()
                if not line:
                    break
        return ""


class OverPipes:
    """A server that is started here, for the check alone."""

    def __init__(self, command: list[str], variables: dict[str, str], until: float) -> None:
        self.command, self.until, self.read = command, until, b""
        self.environment = {**os.environ, **variables}

    def check(self) -> None:
        """Start it, say hello, have the tools listed, and end it."""
        with tempfile.TemporaryFile() as said:
            server = subprocess.Popen(  # noqa: S603  what the task says
                self.command,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
            )
            try:
                self.ask(server, asked(1, "initialize"))
                self.tell(server, INITIALIZED)
                check_listed(self.ask(server, asked(2, "tools/list")))
            except (Unreached, OSError) as error:
                said.seek(max(0, said.tell() - 500))
                words = said.read().decode(errors="replace").strip()
                raise Unreached(f"{error}; it said: {words}" if words else str(error)) from error
            finally:
                self.end(server)

    def tell(self, server: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
        """Write a message."""
        if server.stdin:
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()

    def ask(self, server: subprocess.Popen[bytes], message: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a message; what is none is passed over."""
        self.tell(server, message)
        while True:
            answer = parsed(self.line(server))
            if isinstance(answer, dict) and answer.get("id") == message["id"]:
                result_of(answer)
                return answer

    def line(self, server: subprocess.Popen[bytes]) -> bytes:
        """Return the next line that it writes."""
        if server.stdout is None:
            raise Unreached("it has no output")
        if time.monotonic() > self.until:
            raise Unreached(LATE)
        with selectors.DefaultSelector() as selector:
            selector.register(server.stdout, selectors.EVENT_READ)
            while b"\n" not in self.read:
                if len(self.read) > ANSWER_MAX_BYTES or not selector.select(max(self.until - time.monotonic(), 0)):
                    raise Unreached(LATE)
                piece = os.read(server.stdout.fileno(), 65536)
                if not piece:
                    raise Unreached("it ended")
                self.read += piece
        line, self.read = self.read.split(b"\n", 1)
        return line

    def end(self, server: subprocess.Popen[bytes]) -> None:
        """End it, and all that it started."""
        with suppress(OSError):
            if server.stdin:
                server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            server.wait(ENDS_WITHIN_S)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def check_command(url: str, until: float) -> None:
    """Raise `Unreached` if the tools that `gym-tool` calls are not listed."""
    answer = parsed(OverHttp(url, {}, until).send(None, "GET"))
    if not isinstance(answer, dict) or not isinstance(answer.get("tools"), list):
        raise Unreached("it did not list its tools")


def check(server: dict[str, Any], within_s: float) -> None:
    """Have a server list its tools, again and again while it is away; raises what is wrong in the end."""
    until = time.monotonic() + within_s
    while True:
        try:
            if "command" in server:
                return OverPipes([server["command"], *server["args"]], server.get("env", {}), until).check()
            if server.get("is_plain"):
                return check_command(server["url"], until)
            return OverHttp(server["url"], server["headers"], until).check()
        except Away:
            if time.monotonic() + PAUSE_S > until:
                raise
            time.sleep(PAUSE_S)


def main() -> None:
    """See the module."""
    said = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for server in said["servers"]:
        try:
            check(server, said["within_s"])
        except (Unreached, OSError, ValueError, RecursionError) as error:
            line = " ".join(f"{SAID} is not to be used: {server['name']}: {error}".split())
            sys.stderr.write(line + "\n")
            sys.exit(UNREACHED)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  what was ordered


if __name__ == "__main__":
    main()
