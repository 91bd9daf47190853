"""A model backend that can be made to fail in every way, in a thread of the test's own process."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

HTML = "<!DOCTYPE html><html><body>Sign in to the hotel's network</body></html>"
KEY = "fake-key-0123456789abcdef"
SUM = re.compile(r"(\d+) ?\+ ?(\d+)")
Mood = Literal["well", "html", "torn"] | int


@dataclass
class Backend:
    """Answers sums rightly when `chat` is "well"; a number is an HTTP status, "torn" an answer cut off in its middle.

    `lists` is the same for the list of models, which is asked for once before a run.
    """

    chat: Mood = "well"
    lists: Mood = "well"
    delay_s: float = 0.0
    calls: list[tuple[float, Mood]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    url: str = ""
    tool: str | None = None

    def wait_for_calls(self, count: int, patience_s: float = 30.0) -> None:
        """Wait until `count` chat completions have been asked for."""
        deadline = time.monotonic() + patience_s
        while len(self.calls) < count:
            assert time.monotonic() < deadline, f"{len(self.calls)} calls, not {count}"
            time.sleep(0.02)

    def said(self, mood: Mood, path: str, request: Any) -> tuple[int, str]:
        """Return status and body of an answer."""
        if mood == "html":
            return 200, HTML
        if isinstance(mood, int):
            return mood, json.dumps({"error": {"message": f"the fake says {mood}"}})
        if path.endswith("/models"):
            return 200, json.dumps({"object": "list", "data": [{"id": "fake"}]})
        messages = request["messages"]
        if self.tool and messages[-1]["role"] != "tool":
            function = {"name": "shell", "arguments": json.dumps({"command": self.tool})}
            message = {"role": "assistant", "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
        else:
            asked = next(m["content"] for m in messages if m["role"] == "user")
            found = SUM.search(asked)
            text = str(int(found[1]) + int(found[2])) if found else "?"
            message = {"role": "assistant", "content": f"<answer>{text}</answer>"}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
        return 200, json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})


@contextmanager
def backend(**how: Any) -> Iterator[Backend]:
    """Serve a `Backend` on a port of its own."""
    fake = Backend(**how)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(fake.lists, None)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            mood = fake.chat
            fake.calls.append((time.monotonic(), mood))
            time.sleep(fake.delay_s)
            self._answer(mood, request)

        def _answer(self, mood: Mood, request: Any) -> None:
            fake.keys.add(self.headers.get("Authorization", ""))
            status, text = fake.said("well" if mood == "torn" else mood, self.path, request)
            body = text.encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if mood == "html" else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if mood == "torn" else body)
            except OSError:  # whoever asked has gone
                self.close_connection = True
            if mood == "torn":
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_sums(path: Path, count: int) -> Path:
    """Write `count` tasks that a `Backend` can solve."""
    rows = [{"question": f"What is {n} + {n + 1}?", "answer": str(2 * n + 1)} for n in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_config(directory: Path, fake: Backend, *, tasks: int = 4, **more: Any) -> Path:
    """Write the configuration of a run without tools that asks `fake`; `more` are further keys."""
    config: dict[str, Any] = {
        "taskset": {"type": "jsonl", "jsonl_fpath": str(write_sums(directory / "sums.jsonl", tasks))},
        "model": {"type": "openai", "policy_base_url": fake.url, "policy_model_name": "fake", "policy_api_key": KEY},
        "agent": {"enable_tools": False},
        "retries": {"backoff_s": 0.1},
    }
    for key, value in more.items():
        config[key] = {**config[key], **value} if isinstance(config.get(key), dict) else value
    path = directory / "run.yaml"
    path.write_text(json.dumps(config))
    return path
