"""Servers of tools as a harness is given them: at an address, or as a command that the harness runs itself in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

SERVER_SLACK_S: Final = 30.0
"""What whoever calls a tool by the gateway waits longer than the call may take: the gateway says what came of it."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server over HTTP, and how long one call may take; the client waits `slack_s` longer. `headers` may hold a token.

    Without a `required` one no launch begins.
    """

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 300.0
    required: bool = True
    slack_s: float = SERVER_SLACK_S

    @property
    def waits_s(self) -> float:
        """Return how long a client waits for a call."""
        return self.timeout_s + self.slack_s


@dataclass(frozen=True, slots=True)
class LocalServer:
    """An MCP server that the harness starts in the sandbox and speaks to by its input and output; else as `McpServer`.

    `variables` are for its environment, which has little in it otherwise.
    """

    name: str
    command: str
    args: tuple[str, ...] = ()
    timeout_s: float = 300.0
    required: bool = True
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def waits_s(self) -> float:
        """Return how long a client waits for a call."""
        return self.timeout_s


Server = McpServer | LocalServer
NOTHING: Final[Mapping[str, Any]] = {}


def entry_of(
    server: Server, *, remote: Mapping[str, Any] = NOTHING, local: Mapping[str, Any] = NOTHING, url: str = "url"
) -> dict[str, Any]:
    """Return a server as most configurations have it: address and headers and what is `remote`, or command and what is `local`."""
    if isinstance(server, LocalServer):
        variables = {"env": dict(server.variables)} if server.variables else {}
        return {"command": server.command, "args": list(server.args), **variables, **local}
    return {url: server.url, "headers": dict(server.headers), **remote}


def normalised(name: str) -> str:
    """Return a server's name as every harness can have it: lower case, `_` for what is no letter, digit or `_`."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())
