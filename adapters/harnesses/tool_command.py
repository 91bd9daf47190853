"""`gym-tool NAME '{"key": "value"}'`: calls a tool of the task. Carried into the machine as text, for Python 3.8 or newer.

`gym-tool` alone lists the tools. It prints what the tool says; exit code 0, 1 if the tool refused, 2 for what was no call. While the
gateway is away it asks again, and says that it is the same call.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from pathlib import Path
from typing import Any

AWAY_S = 60.0
PAUSE_S = 1.0
BUSY = 503


def asked(url: str, body: bytes | None, call_id: str, timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Return the status and the answer's JSON; raises `OSError` if there is none."""
    headers = {"content-type": "application/json", "x-gym-bus-call": call_id}
    request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310  the gateway's
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        try:
            return error.code, json.loads(said)
        except ValueError:
            return error.code, {"error": said[:500]}


def patiently(url: str, body: bytes | None, timeout_s: float) -> tuple[int, dict[str, Any]]:
    """Ask until there is an answer, `AWAY_S` from the last sign of life on at most."""
    call_id, until = uuid.uuid4().hex, time.monotonic() + AWAY_S
    while True:
        began = time.monotonic()
        try:
            status, answer = asked(url, body, call_id, timeout_s)
            if status != BUSY:
                return status, answer
            problem = str(answer.get("error"))
        except (OSError, ValueError, http.client.HTTPException) as error:
            problem = str(error) or type(error).__name__
            if time.monotonic() - began > PAUSE_S:  # it was there, and went away
                until = max(until, time.monotonic() + AWAY_S)
                timeout_s -= time.monotonic() - began
        if time.monotonic() > until or timeout_s <= 0:
            return BUSY, {"error": "the tool cannot be reached: " + problem}
        time.sleep(PAUSE_S)


def is_object(text: str) -> bool:
    """Say whether a text is a JSON object that can be sent."""
    try:
        return bool(text.encode()) and isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):  # also for what is no text
        return False


def main() -> int:
    """Do what the command line says."""
    said = json.loads(Path(__file__).with_name("gym-tool.json").read_text())
    words = sys.argv[1:]
    if not words:
        status, answer = patiently(said["url"], None, said["timeout_s"])
        for tool in answer.get("tools", ()):
            print(tool["name"], "-", tool["description"], json.dumps(tool["inputSchema"]))  # noqa: T201
        return 0 if "tools" in answer else int(bool(status)) * 2
    name, arguments = words[0], words[1] if len(words) > 1 else "{}"
    is_name = bool(name) and name.isprintable() and "/" not in name  # printable is what can be written, too
    if not is_name or not is_object(arguments) or len(words) > 2:  # noqa: PLR2004
        print('usage: gym-tool NAME \'{"key": "value"}\'; the arguments are one JSON object', file=sys.stderr)  # noqa: T201
        return 2
    url = said["url"] + "/" + urllib.parse.quote(name, safe="")
    _, answer = patiently(url, arguments.encode(), said["timeout_s"])
    print(answer.get("text") or answer.get("error"))  # noqa: T201
    return int(bool(answer.get("is_error", True)))


if __name__ == "__main__":
    sys.exit(main())
