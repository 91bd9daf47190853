"""Words that every file of this dialect uses: its own name, the fields that say nothing, ids made from where a thing stands."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, TypeVar

from providers.dialects.fields import Fields, escaped
from schemas.conversation import DialectName

NAME: Final[DialectName] = "responses"

# Fields of items and parts that tell how the API keeps them and nothing that was said: they are read over.
INERT: Final = frozenset({"id", "internal_chat_message_metadata_passthrough", "logprobs", "phase", "status"})

NAMESPACES: Final = "tools.namespaces"
"""Where `Request.others` keeps what the client says about its namespaces of tools, by their names."""

T = TypeVar("T")

Notes = dict[str, Any]
"""What is not known here, by its path in the body; it ends up in `others`."""


def note_rest(fields: Fields, notes: Notes) -> None:
    """Write down each field that was not taken and that may mean something."""
    for name, value in fields.rest().items():
        if name not in INERT:
            notes[fields.at(escaped(name))] = value


def take_known(fields: Fields, name: str, known: Mapping[str, T], notes: Notes) -> T | None:
    """Take a word that is one of `known`; any other is written down, and counts as absent."""
    word = fields.text(name)
    if word is not None and word not in known:
        notes[fields.at(name)] = word
    return None if word is None else known.get(word)


def made_id(prefix: str, *place: str | int) -> str:
    """Return the same id for the same place, well under the 64 characters that the API takes."""
    return f"{prefix}_{sha256(':'.join(map(str, place)).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
