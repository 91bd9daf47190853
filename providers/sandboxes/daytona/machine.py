"""One machine of Daytona, through the toolbox that runs in it."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from providers.sandboxes.daytona.calls import Calls


class DaytonaMachine:
    """See `providers.sandboxes.remote.cloud.Machine`. Commands run as the user that the machine was made with."""

    def __init__(self, calls: Calls, machine_id: str, toolbox_url: str) -> None:
        self.calls = calls
        self._id = machine_id
        self._url = f"{toolbox_url.rstrip('/')}/{machine_id}"

    @property
    def is_exact(self) -> bool:
        """Say no: the toolbox makes text of what is printed."""
        return False

    @property
    def is_streamed(self) -> bool:
        """Say no: the call answers when the command has ended."""
        return False

    @property
    def id(self) -> str:
        """Return Daytona's name for it."""
        return self._id

    async def run(
        self,
        command: str,
        hear: Callable[[bytes], bool],
        *,
        user: str | None,  # noqa: ARG002  there is one
        timeout_s: float,
    ) -> int | None:
        """Run `command` to its end; what it printed is handed over then."""
        body = {"command": command, "timeout": math.ceil(timeout_s)}
        done = await self.calls.json("running a command", "POST", f"{self._url}/process/execute", json=body)
        hear(str(done["result"]).encode(errors="replace") + b"\n")
        code = done.get("exitCode")
        return None if code is None else int(code)

    async def upload(self, source: Path, path: str) -> None:
        """Stream a file in."""
        with source.open("rb") as file:
            await self.calls.json(
                "writing a file",
                "POST",
                f"{self._url}/files/upload-v2",
                params={"path": path},
                files={"file": (source.name, file, "application/octet-stream")},
            )

    async def download(self, path: str) -> AsyncGenerator[bytes, None]:
        """Stream a file out."""
        url = f"{self._url}/files/download"
        async with self.calls.streamed("reading a file", "GET", url, params={"path": path}) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    async def renew(self, lifetime_s: int) -> None:  # noqa: ARG002  it was told once
        """Say that it is in use: it stops, and is gone, when nobody has said so for its lifetime."""
        await self.calls.api("renewing", "POST", f"/sandbox/{self._id}/last-activity")
