"""A machine's door to the model gateway of its host: opened, and proved from inside before anybody is told of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from gym_bus.errors import GymBusError
from gym_bus.gateway_file import SOCKET_FILE, GatewayAddress, gateway_directory, listening
from gym_bus.reach import probe
from providers.sandboxes.base import Box, ExecResult
from providers.sandboxes.capabilities import WithWayOut
from providers.sandboxes.processes import with_usual_path
from schemas.readiness import GatewayDoor
from schemas.sandboxes import Apptainer, Enroot, RemoteSandbox, SandboxConfig, UnsafeLocal

GATEWAY_WITHIN_S: Final = 30.0
PROBES: Final = 3
PROBED_WITHIN_S: Final = 30.0
PROBED_AGAIN_AFTER_S: Final = 1.0
SAID_MAX: Final = 400


class GatewayUnreachable(GymBusError):
    """A machine cannot reach the model gateway; the message says where it was looked for, and what to do."""


class Doors:
    """Opens doors to the gateway of the data directory `data_dir`; one that is not up yet has `waits_s` to come up."""

    def __init__(
        self, data_dir: Path, waits_s: float = GATEWAY_WITHIN_S, probed_again_after_s: float = PROBED_AGAIN_AFTER_S
    ) -> None:
        """See the class."""
        self._directory = gateway_directory(data_dir)
        self._waits_s = waits_s
        self._probed_again_after_s = probed_again_after_s

    async def open(self, box: Box, sandbox: SandboxConfig, door: GatewayDoor, key: str) -> str:
        """Return the gateway's address inside of `box`, where it has answered; `key` begins those of the commands that ask.

        Raises `GatewayUnreachable`, and `BoxLost` for a machine that is gone.
        """
        _check(box, sandbox)
        where = await self._gateway()
        url = await self._led(box, sandbox, door, where)
        tries = 1
        while (found := await self._asked(box, url, f"{key}/gateway-{tries}")).exit_code != 0:
            if tries == PROBES:
                raise GatewayUnreachable(_unanswered(sandbox, url, found))
            tries += 1
            await asyncio.sleep(self._probed_again_after_s)
        return url

    @staticmethod
    async def _asked(box: Box, url: str, key: str) -> ExecResult:
        return await box.exec(with_usual_path(probe(url)), key=key, timeout_s=PROBED_WITHIN_S)

    async def _gateway(self) -> GatewayAddress:
        """Return where the gateway listens, as soon as it does."""
        path = self._directory / SOCKET_FILE
        try:
            return await listening(self._directory, self._waits_s)
        except TimeoutError as error:
            msg = f"no model gateway listens at {path}, after {self._waits_s:g} s: `gym-bus gateway up` starts one"
            raise GatewayUnreachable(msg) from error

    async def _led(self, box: Box, sandbox: SandboxConfig, door: GatewayDoor, where: GatewayAddress) -> str:
        if isinstance(sandbox, RemoteSandbox):
            if where.remote_url is None:
                msg = (
                    f"the model gateway listens at {where.url}, which a sandbox of type {sandbox.type} cannot reach: set "
                    "GYM_BUS_DEFAULT_HOST to an address of this host that means the same from there, then `gym-bus bus down`"
                )
                raise GatewayUnreachable(msg)
            return where.remote_url
        if isinstance(box, WithWayOut):
            return await box.open_way_out(self._directory / SOCKET_FILE, door.port)
        return where.url


def _check(box: Box, sandbox: SandboxConfig) -> None:
    """Raise `GatewayUnreachable` for a machine that has neither a way out nor this host's network, nor one of its own."""
    match sandbox:
        case RemoteSandbox() | UnsafeLocal():
            return
        case Apptainer() | Enroot() if sandbox.network == "host":
            return
        case _ if isinstance(box, WithWayOut):
            return
        case Apptainer() | Enroot():
            advice = "set sandbox.network=host, or choose bubblewrap or docker"
        case _:
            advice = "choose bubblewrap or docker"
    msg = f"a sandbox of type {sandbox.type} has no way to the model gateway: {advice} (sandbox.type)"
    raise GatewayUnreachable(msg)


def _unanswered(sandbox: SandboxConfig, url: str, found: ExecResult) -> str:
    said = f"{found.output.strip()[-SAID_MAX:] or 'nothing was said'} ({found.ended_by}, exit code {found.exit_code})"
    advice = ""
    if isinstance(sandbox, RemoteSandbox):
        advice = (
            ": GYM_BUS_DEFAULT_HOST must name an address of this host that such a sandbox reaches, no firewall may stand "
            f"between, and sandbox.allow_hosts (now {_listed(sandbox.allow_hosts)}) must let it"
        )
    return f"the model gateway does not answer at {url} inside of a sandbox of type {sandbox.type}: {said}{advice}"


def _listed(hosts: tuple[str, ...] | None) -> str:
    return "null" if hosts is None else f"[{', '.join(hosts)}]"
