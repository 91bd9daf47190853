"""Tools of MCP servers over HTTP, which somebody else runs: called by the official client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gym_bus.errors import Permanent
from schemas.environment import RemoteTool
from tools.task_tools import Ran


async def call_remote(tool: RemoteTool, arguments: Mapping[str, Any]) -> Ran:
    """Not yet."""
    raise Permanent(f"{tool.url}: tools of MCP servers cannot be called yet ({len(arguments)})")
