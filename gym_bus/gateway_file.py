"""Where the model gateway of a data directory is found: a directory with its lock, its unix socket and the file of its addresses."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

GATEWAY: Final = "g0"
ADDRESS_FILE: Final = "gateway.json"
SOCKET_FILE: Final = "gateway.sock"
ACCEPTED_WITHIN_S: Final = 5.0
LOOK_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where a gateway listens: on this host's loopback, on a unix socket, and where other machines reach it, if anywhere."""

    url: str
    socket: str
    remote_url: str | None = None

    def said(self) -> dict[str, str]:
        """Return what there is, as the file has it."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def gateway_directory(data_dir: Path, host_id: str = GATEWAY) -> Path:
    """Return the directory of the gateway `host_id`."""
    return data_dir / "hosts" / host_id


def write_address(directory: Path, address: GatewayAddress) -> None:
    """Replace the file of a gateway's addresses, atomically."""
    written = directory / f".{ADDRESS_FILE}"
    written.write_text(json.dumps(address.said()) + "\n", encoding="utf-8")
    written.replace(directory / ADDRESS_FILE)


def read_address(directory: Path) -> GatewayAddress | None:
    """Return where the gateway of `directory` listens, or listened last; None if there never was one."""
    try:
        said = json.loads((directory / ADDRESS_FILE).read_text(encoding="utf-8"))
        return GatewayAddress(said["url"], said["socket"], said.get("remote_url"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


async def accepts(path: Path) -> bool:
    """Say whether somebody listens at the unix socket `path`."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(ACCEPTED_WITHIN_S):
            _, writer = await asyncio.open_unix_connection(str(path))
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return True
    return False


async def listening(directory: Path, within_s: float) -> GatewayAddress:
    """Return where the gateway of `directory` listens, as soon as it does; raises `TimeoutError` if it does not `within_s`."""
    async with asyncio.timeout(within_s):
        # It takes no connection before its addresses are written down.
        while not (await accepts(directory / SOCKET_FILE) and (found := read_address(directory))):  # noqa: ASYNC110  another process does it
            await asyncio.sleep(LOOK_EVERY_S)
    return found
