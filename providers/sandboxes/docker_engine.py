"""The engine behind a unix socket: every question has a deadline, every refusal becomes one of our errors, in the engine's words."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final, TypeVar

import aiodocker
import aiohttp

from gym_bus.engine_socket import DEFAULT_SOCKET
from providers.sandboxes.base import CreateFailed, SandboxUnavailable

API_TIMEOUT_S: Final = 60.0
"""Engines start containers one after the other, more or less: this is for the last of a crowd."""
WORDS_MAX: Final = 500
GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""What is said of a container that is not there, that does not run, or whose removal is under way."""

T = TypeVar("T")


class EngineRefused(CreateFailed):
    """The engine said no; `status` is that of its HTTP answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """One client of one engine, opened when it is first used."""

    def __init__(self, socket: str | None) -> None:
        self.socket = socket or DEFAULT_SOCKET
        self._connector: aiohttp.UnixConnector | None = None
        self._client: aiodocker.Docker | None = None

    @property
    def client(self) -> aiodocker.Docker:
        """Return the client; each box keeps two connections, so their number is not bounded here."""
        if self._client is None:
            self._connector = aiohttp.UnixConnector(self.socket, limit=0)
            self._client = aiodocker.Docker(url="unix://localhost", connector=self._connector)
        return self._client

    async def ask(self, what: str, call: Awaitable[T], timeout_s: float = API_TIMEOUT_S) -> T:
        """Return the answer to `call`. Raises `EngineRefused`, `CreateFailed` (no answer) or `SandboxUnavailable` (no engine)."""
        try:
            async with asyncio.timeout(timeout_s):
                return await call
        except TimeoutError as error:
            raise CreateFailed(
                f"{what}: the container engine at {self.socket} did not answer in {timeout_s:g} s"
            ) from error
        except aiodocker.DockerError as error:
            if isinstance(error.__context__, aiohttp.ClientConnectorError):  # aiodocker's status 900
                raise self._unreachable(error.__context__.os_error) from error
            words = str(error.message)[:WORDS_MAX]
            raise EngineRefused(f"{what}: the container engine says {error.status}: {words}", error.status) from error
        except aiohttp.ClientConnectorError as error:
            raise self._unreachable(error.os_error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise CreateFailed(f"{what}: the container engine at {self.socket} hung up: {error}") from error

    async def aclose(self) -> None:
        """Close all connections; with them go the containers whose first process reads from one."""
        if self._client is not None and self._connector is not None:
            await self._client.close()
            await self._connector.close()
        self._client = self._connector = None

    def _unreachable(self, error: OSError) -> SandboxUnavailable:
        match error:
            case FileNotFoundError() | ConnectionRefusedError():
                advice = (
                    "start it (`systemctl start docker`, or `scripts/setup docker` as root), "
                    "or set sandbox.socket to where it listens"
                )
                return SandboxUnavailable(f"no container engine runs at {self.socket}: {advice}")
            case PermissionError():
                advice = "join its group (`sudo usermod -aG docker $USER`, then log in anew)"
                return SandboxUnavailable(f"the container engine at {self.socket} may not be used: {advice}")
            case _:
                return SandboxUnavailable(f"the container engine at {self.socket} cannot be reached: {error}")
