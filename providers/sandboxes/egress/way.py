"""An allow list for one box: the proxy, the second way out that leads to it, and the variables by which programs find it.

It needs two things of a box, whatever its provider: a way out, and a way to put variables into the environment of later commands.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from gym_bus.errors import Permanent
from providers.sandboxes.egress.attempts import Attempt, Attempts
from providers.sandboxes.egress.bounds import EgressBounds
from providers.sandboxes.egress.proxy import EgressProxy
from schemas.network import Host, parse_hosts

PORT: Final = 8090
HOSTS_MAX: Final = 256
SOCKET: Final = "egress.sock"


def proxy_variables(url: str) -> dict[str, str]:
    """Return what tells programs of a proxy at `url`, in the spellings that they look for."""
    return {
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), url),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1"),
    }


class Egress:
    """See the module. Its socket is in `directory`, which the box must not see."""

    def __init__(
        self,
        directory: Path,
        open_way_out: Callable[[Path, int], Awaitable[str]],
        set_environment: Callable[[Mapping[str, str]], Awaitable[None]],
        *,
        private: Sequence[Host] = (),
        bounds: EgressBounds | None = None,
        on_attempt: Callable[[Attempt], None] | None = None,
    ) -> None:
        self._directory = directory
        self._open_way_out = open_way_out
        self._set_environment = set_environment
        self._proxy = EgressProxy(private=private, bounds=bounds, on_attempt=on_attempt)
        self._handle: int | None = None
        self._opening = asyncio.Lock()
        self._is_open = False

    @property
    def attempts(self) -> Attempts:
        """Return the account of what was tried."""
        return self._proxy.attempts

    async def allow(self, hosts: Sequence[str], phase: str = "") -> None:
        """See `WithEgress`; `phase` is written down with what is tried from now on."""
        try:
            wanted = parse_hosts(hosts)
        except ValueError as error:
            msg = f"a host that a sandbox may reach: {error}"
            raise Permanent(msg) from error
        if len(wanted) > HOSTS_MAX:
            msg = f"a sandbox may reach {HOSTS_MAX} hosts at most, not {len(wanted)}: use `*.name`"
            raise Permanent(msg)
        self._proxy.allow(wanted, phase)
        async with self._opening:
            if wanted and not self._is_open:
                await self._open()

    async def close(self) -> None:
        """End every connection, and the proxy; safe to repeat."""
        await self._proxy.close()
        if self._handle is not None:
            with suppress(FileNotFoundError):
                os.unlink(SOCKET, dir_fd=self._handle)
            os.close(self._handle)
            self._handle = None

    async def _open(self) -> None:
        """Open proxy and way out; nothing is left open if that fails."""
        try:
            # The name of a socket may be no longer than 107 bytes, and a directory's may be: so it goes by a handle.
            self._handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            where = Path(f"/proc/{os.getpid()}/fd/{self._handle}/{SOCKET}")
            await self._proxy.start(where)
            await self._set_environment(proxy_variables(await self._open_way_out(where, PORT)))
        except BaseException:
            await self.close()
            raise
        self._is_open = True
