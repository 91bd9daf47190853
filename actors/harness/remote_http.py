"""One request to an agent that somebody runs somewhere else, with an answer that is bounded in size and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from providers.models.http_client import BrokenOff, HttpClient, NoConnection, Silent, Unsendable
from schemas.values import FailureKind

ANSWER_MAX_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class HttpAsked:
    """A request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpSaid:
    """Its answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Unheard(Exception):
    """There was no answer, whether or not the agent was asked; `kind` says what of that is known."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        """Say why."""
        super().__init__(message)
        self.kind: FailureKind = kind


class Unfit(Exception):
    """The request cannot be sent at all, or its answer is too long to be taken."""


AskAgent = Callable[[HttpAsked, float], Awaitable[HttpSaid]]


async def ask_agent(asked: HttpAsked, within_s: float) -> HttpSaid:
    """Return the answer to a request, over a connection of its own; raises `Unheard`, `Unfit`."""
    client = HttpClient(1, within_s)
    try:
        async with asyncio.timeout(within_s), client.ask(asked.method, asked.url, asked.body, asked.headers) as answer:
            body = bytearray()
            async for chunk in answer.chunks:
                body += chunk
                if len(body) > ANSWER_MAX_BYTES:
                    msg = f"its answer is longer than {ANSWER_MAX_BYTES} bytes"
                    raise Unfit(msg)
            return HttpSaid(answer.status, answer.headers, bytes(body))
    except (TimeoutError, Silent) as error:
        msg = f"nothing came within {within_s:g} s"
        raise Unheard("transport_timeout", msg) from error
    except NoConnection as error:
        raise Unheard("transport_timeout" if error.is_timeout else "transport_unreachable", str(error)) from error
    except BrokenOff as error:
        raise Unheard("transport_unreachable", str(error)) from error
    except Unsendable as error:
        raise Unfit(str(error)) from error
    finally:
        await client.aclose()
