"""The HTTP client of backends: many streamed calls at once, whole answers or bytes as they come.

It is aiohttp's: a streamed call costs a third of the processor time that it costs with httpx, whose pool moreover looks through all of
its connections for every call. Proxies are taken from the environment, and certificates from `SSL_CERT_FILE` or else certifi, as httpx
does; a user's `.netrc` is not looked at.
"""

from __future__ import annotations

import io
import os
import ssl
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import certifi

CONNECT_TIMEOUT_S: Final = 30.0
KEPT_FOR_S: Final = 4.0
"""A connection that nobody uses is closed before the usual server (5 s) closes it under a call."""
HEADER_MAX_BYTES: Final = 64 * 1024
CHUNK_BYTES: Final = 256 * 1024
AT_ONCE_BYTES: Final = 1024 * 1024
"""What is larger is sent piece by piece, so that other calls have their turn."""


class NoConnection(Exception):
    """Nobody took a connection; nothing was sent. `is_timeout` if the time was up."""

    def __init__(self, message: str, *, is_timeout: bool = False) -> None:
        """Say why."""
        super().__init__(message)
        self.is_timeout = is_timeout


class Silent(Exception):
    """Nothing came for as long as may be."""


class Unsendable(Exception):
    """A header that cannot be sent."""


class BrokenOff(Exception):
    """A connection ended, or what came over it is no HTTP."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer whose body is still coming. Names of headers are looked up whatever their case."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


@lru_cache(maxsize=1)
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())


@lru_cache(maxsize=256)
def _proxy_for(scheme: str, host: str) -> str | None:
    """Return the environment's proxy for a host, None for no proxy."""
    if urllib.request.proxy_bypass_environment(host):  # type: ignore[attr-defined]  # there, and not in the stubs
        return None
    proxies = urllib.request.getproxies_environment()  # the same
    found = proxies.get(scheme) or proxies.get("all")
    proxy = f"http://{found}" if found and "://" not in found else found
    if proxy and urlsplit(proxy).scheme not in {"http", "https"}:
        msg = f"the environment's proxy for {scheme} is of a kind that is not spoken here: {proxy.partition('@')[2] or proxy}"
        raise Unsendable(msg)
    return proxy


class HttpClient:
    """See the module. Up to `concurrency` calls at once have connections of their own; no redirect is followed."""

    def __init__(self, concurrency: int, timeout_s: float) -> None:
        """Take `timeout_s` for the longest silence."""
        self._concurrency = concurrency
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S), sock_read=timeout_s
        )
        self._session: aiohttp.ClientSession | None = None

    def post(
        self, url: str, content: bytes, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[HttpAnswer, bool | None]:
        """Send a call; see `ask`."""
        return self.ask("POST", url, content, headers)

    @asynccontextmanager
    async def ask(
        self, method: str, url: str, content: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[HttpAnswer]:
        """Send a request; the context holds its connection, and ends it if the body was not read to its end.

        Raises `NoConnection`, `Silent` or `BrokenOff`, while it is entered and while the chunks are read; `Unsendable` before.
        """
        try:
            "".join(headers.values()).encode("ascii")
        except UnicodeEncodeError as error:
            raise Unsendable(f"a header cannot be encoded: {error.reason}") from error
        body = content if len(content) <= AT_ONCE_BYTES else io.BytesIO(content)
        try:
            response = await self._opened().request(
                method, url, data=body, headers=headers, allow_redirects=False, proxy=_proxy_of(url)
            )
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError, ValueError, OSError) as error:
            raise _named(error) from error
        try:
            yield HttpAnswer(response.status, response.headers, response.content.iter_any())
        except (aiohttp.ClientError, aiohttp.http.HttpProcessingError) as error:
            raise _named(error) from error
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._concurrency, keepalive_timeout=KEPT_FOR_S, ssl=_certificates(), ttl_dns_cache=10
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=self._timeout,
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=HEADER_MAX_BYTES,
                max_field_size=HEADER_MAX_BYTES,
                read_bufsize=CHUNK_BYTES,
                headers={"accept-encoding": "gzip, deflate"},
            )
        return self._session

    async def aclose(self) -> None:
        """Give back connections."""
        if self._session is not None:
            await self._session.close()


def _named(error: Exception) -> Exception:
    """Return what an error of the client means to a call."""
    match error:
        case ValueError() if not isinstance(error, aiohttp.ClientError):
            return Unsendable(f"a header cannot be sent: {error}")
        case aiohttp.ConnectionTimeoutError():
            return NoConnection(str(error) or "no connection in time", is_timeout=True)
        case aiohttp.ServerTimeoutError():
            return Silent(str(error))
        case aiohttp.ClientConnectorError():
            return NoConnection(
                str(error).replace(" ssl:default", "")
            )  # said of every address, also of one without TLS
        case _:
            return BrokenOff(f"{type(error).__name__}: {error}")


def _proxy_of(url: str) -> str | None:
    parts = urlsplit(url)
    return _proxy_for(parts.scheme, parts.hostname or "")
