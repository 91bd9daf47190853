"""An MCP server for tests, by its input and output: one tool, `say`. Run in sandboxes, by Python 3.8 or newer; see `SCRIPT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).read_text(encoding="utf-8") if __name__ != "__main__" else ""
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        about = {"name": "double", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [{"name": "say", "description": "Say it aloud.", "inputSchema": SCHEMA}]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"aloud: {params['arguments']['text']}"}], "isError": False}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
        found = result(asked["method"], asked.get("params") or {})
        answer.update({"result": found} if found is not None else {"error": {"code": -32601, "message": "no"}})
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
