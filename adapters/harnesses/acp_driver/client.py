"""What an agent may ask of its client: permissions, which it is given, and files and commands of the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acp import RequestError  # type: ignore[import-not-found]
from acp.schema import (  # type: ignore[import-not-found]
    AllowedOutcome,
    CreateTerminalResponse,
    DeniedOutcome,
    KillTerminalResponse,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from adapters.harnesses.acp_driver.lines import part_of
from adapters.harnesses.acp_driver.telling import Telling
from adapters.harnesses.acp_driver.terminals import OUTPUT_MAX_BYTES, Terminal

FILE_MAX_BYTES = 16 * 1024 * 1024
TERMINALS_MAX = 64


class Client:
    """What an agent may ask of us."""

    def __init__(self, telling: Telling, workspace: str, environment: Mapping[str, str]) -> None:
        """Tell with `telling`; commands have `environment`. Nothing is told before `is_listening`."""
        self._telling = telling
        self._workspace = Path(workspace).resolve()
        self._environment = environment
        self._terminals: dict[str, Terminal] = {}
        self._count = 0
        self.is_listening = False

    async def session_update(self, update: Any, **_: Any) -> None:
        """Tell what is new; what a session that is loaded repeats is not."""
        if not self.is_listening:
            return
        match update.session_update:
            case "agent_message_chunk":
                self._telling.piece("said", getattr(update.content, "text", None) or f"[{update.content.type}]")
            case "agent_thought_chunk":
                self._telling.piece("thought", getattr(update.content, "text", None) or f"[{update.content.type}]")
            case "tool_call" | "tool_call_update":
                self._telling.call(update, self._terminals)
            case "plan":
                self._telling.plan(update.entries)
            case _:
                pass

    async def request_permission(self, options: list[Any], **_: Any) -> Any:
        """Allow it, this once if that can be said."""
        for kind in ("allow_once", "allow_always"):
            for option in options:
                if option.kind == kind:
                    allowed = AllowedOutcome(outcome="selected", option_id=option.option_id)
                    return RequestPermissionResponse(outcome=allowed)
        return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))

    async def read_text_file(self, path: str, line: int | None = None, limit: int | None = None, **_: Any) -> Any:
        """Return a file's text, or some of its lines."""
        place = self._file(path)
        try:
            with place.open("rb") as file:
                content = file.read(FILE_MAX_BYTES + 1)
        except OSError as error:
            raise RequestError.resource_not_found(str(error)) from error
        if len(content) > FILE_MAX_BYTES:
            raise RequestError.invalid_params({"details": f"{path} has more than {FILE_MAX_BYTES} bytes"})
        text = content.decode(errors="replace")
        if line is not None or limit is not None:
            text = part_of(text, line, limit)
        return ReadTextFileResponse(content=text)

    async def write_text_file(self, path: str, content: str, **_: Any) -> Any:
        """Write a file, and the directories above it."""
        place = self._file(path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        except OSError as error:
            raise RequestError.internal_error({"details": str(error)}) from error
        return WriteTextFileResponse()

    async def create_terminal(
        self,
        command: str,
        args: list[str] | None = None,
        env: list[Any] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> Any:
        """Start a command in the workspace; one without arguments is a line of the shell."""
        if len(self._terminals) >= TERMINALS_MAX:
            raise RequestError.invalid_params({"details": f"{TERMINALS_MAX} terminals are open: release some"})
        argv = (command, *args) if args else ("/bin/sh", "-c", command)
        most = OUTPUT_MAX_BYTES if output_byte_limit is None else output_byte_limit
        variables = {**self._environment, **{one.name: one.value for one in env or ()}}
        where = self._inside(cwd) if cwd else self._workspace
        try:
            started = await Terminal.started(argv, variables, where, most)
        except (OSError, ValueError) as error:
            raise RequestError.invalid_params({"details": str(error)}) from error
        self._count += 1
        name = f"terminal-{self._count}"
        self._terminals[name] = started
        return CreateTerminalResponse(terminal_id=name)

    async def terminal_output(self, terminal_id: str, **_: Any) -> Any:
        """Return what a command has written, and how it ended if it has."""
        one = self._terminal(terminal_id)
        status = TerminalExitStatus(exit_code=one.exit_code, signal=one.signal) if one.is_over else None
        return TerminalOutputResponse(output=one.text, truncated=one.is_cut, exit_status=status)

    async def wait_for_terminal_exit(self, terminal_id: str, **_: Any) -> Any:
        """Wait for a command's end."""
        one = self._terminal(terminal_id)
        await one.wait()
        return WaitForTerminalExitResponse(exit_code=one.exit_code, signal=one.signal)

    async def kill_terminal(self, terminal_id: str, **_: Any) -> Any:
        """End a command."""
        self._terminal(terminal_id).kill()
        return KillTerminalResponse()

    async def release_terminal(self, terminal_id: str, **_: Any) -> Any:
        """End a command if it runs; its place is free again."""
        self._terminal(terminal_id).kill()
        del self._terminals[terminal_id]
        return ReleaseTerminalResponse()

    def _terminal(self, name: str) -> Terminal:
        if name not in self._terminals:
            raise RequestError.invalid_params({"details": f"there is no terminal {name!r}"})
        return self._terminals[name]

    def _file(self, path: str) -> Path:
        """Return where a file is, or may be made; an error if something stands there that one might wait for without end."""
        place = self._inside(path)
        if place.exists() and not place.is_file():
            raise RequestError.invalid_params({"details": f"{path} is no regular file"})
        return place

    def _inside(self, path: str) -> Path:
        """Return where a path leads to; an error if that is outside of the workspace."""
        place = (self._workspace / path).resolve()
        if not place.is_relative_to(self._workspace):
            raise RequestError.invalid_params({"details": f"{path} is outside of the workspace {self._workspace}"})
        return place
