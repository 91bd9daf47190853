"""Tokens that let an agent's process call the model: each is for one activation, and signed, so that no store of tokens is needed.

A token says which session it is for, and which activation of it; whether it still counts is asked of the log: it does while both are
open. So it outlives every process of ours, a takeover of its session included, and ends with the activation.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from gym_bus.errors import GymBusError, Permanent
from gym_bus.subjects import AggregateId, aggregate

PREFIX: Final = "gbt"
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 18
TOKEN_MAX: Final = 512
READ_MAX: Final = 10_000


class Refused(GymBusError):
    """A token that is none, is not ours, or is for a session that is over: a 401."""


class SessionOver(Refused):
    """A token whose whole session is over: nothing of it is asked any more."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token is for: `conversation` is where the session's calls are recorded, `activation` (from 1) the input it works on.

    `launch` is the number of the program's launch for that, which is that of the sandbox it runs in.
    """

    conversation: AggregateId
    attempt: int
    activation: int = 1
    launch: int = 1

    @property
    def session(self) -> str:
        """Return what the session's attempt is called by backends that tell sessions apart."""
        return f"{self.conversation.prefix}.{self.attempt}"


def gateway_key(directory: Path) -> bytes:
    """Return the key that signs tokens, made at first use; a file that only the owner reads."""
    path = directory / "gateway.key"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        msg = f"{path} holds no key of {KEY_BYTES} bytes: remove it, and every open session gets a new token"
        raise Permanent(msg)
    return key


def mint(key: bytes, grant: Grant) -> str:
    """Return the token for `grant`: letters, digits, `-`, `_` and `.`, fit for a header and for a path."""
    where = grant.conversation
    numbers = f"{grant.attempt}/{grant.activation}/{grant.launch}"
    body = f"{where.shard}/{where.run_id}/{where.rollout_id}/{where.key}/{numbers}".encode()
    return f"{PREFIX}.{_text(body)}.{_text(_signature(key, body))}"


@lru_cache(maxsize=READ_MAX)
def read(key: bytes, token: str) -> Grant:
    """Return what `token` is for; raises `Refused` unless it was minted with `key`. Only good ones are remembered."""
    prefix, _, rest = token[:TOKEN_MAX].partition(".")
    body_text, _, signature_text = rest.partition(".")
    try:
        body, signature = _bytes(body_text), _bytes(signature_text)
    except ValueError:
        body = signature = b""
    if prefix != PREFIX or not body or not hmac.compare_digest(signature, _signature(key, body)):
        msg = "no token of this gateway"
        raise Refused(msg)
    shard, run_id, rollout_id, session, *numbers = body.decode().split("/")
    where = aggregate(run_id, rollout_id, "model", session)
    attempt, activation, launch = map(int, numbers)
    return Grant(AggregateId(int(shard), *where.rollout, "model", session), attempt, activation, launch)


def _signature(key: bytes, body: bytes) -> bytes:
    return hmac.digest(key, body, hashlib.sha256)[:SIGNATURE_BYTES]


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
