"""What a request says in fields that nobody here knows: recorded where it is new, and compared by a digest of all of it.

Backends have more parameters than any list of them (`logit_bias`, `min_p`, `chat_template_kwargs`), and blocks that only they know.
What a client calls itself and its turns is neither recorded nor compared: it is another one each time a program is launched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import pydantic_core

from schemas.conversation import Request

OTHERS: Final = "others"
OTHERS_DIGEST: Final = "others_digest"
GOES_ON_FROM: Final = "previous_response_id"
"""Recorded with each call that has it: by it later launches find what was asked."""
NAMES_ITSELF: Final = frozenset(
    {
        "client_metadata",
        "id",
        "item_id",
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "status",
        "user",
    }
)
"""The last names of such fields' paths. `status` is how far an item of Responses was when the client kept it."""


def said_in(request: Request) -> dict[str, Any]:
    """Return the unknown fields of a request that tell its model anything, by their paths."""
    return {path: value for path, value in request.others.items() if path.rpartition(".")[2] not in NAMES_ITSELF}


def digest_of(said: Mapping[str, Any]) -> str | None:
    """Return the digest of such fields, None if there are none."""
    return _digest(sorted(said.items())) if said else None


class UnknownFields:
    """What of them a conversation's log holds already: each is recorded once, and again when it says something else."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._recorded: dict[str, str] = {}

    def new(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """Return those that have to be recorded with a call that says all of `said`."""
        return {
            path: value
            for path, value in said.items()
            if path == GOES_ON_FROM or self._recorded.get(path) != _digest(value)
        }

    def note(self, parameters: Mapping[str, Any]) -> None:
        """Take in the parameters that are recorded of a call."""
        self._recorded.update((path, _digest(value)) for path, value in parameters.get(OTHERS, {}).items())


def _digest(value: Any) -> str:
    return hashlib.sha256(pydantic_core.to_json(value)).hexdigest()[:32]
