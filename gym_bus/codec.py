"""Envelopes to bytes and back: the one place that knows the stored form.

Stored is what the subject does not say already: run, rollout, actor and key come from the subject's tokens. Data over
`inline_max_bytes` goes to the blob store first, and the event names the blob in its place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent, TooDeep
from gym_bus.nesting import STORED_MAX_LEVELS, is_deeper
from gym_bus.redaction import Redactor
from gym_bus.subjects import parse_event
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.registry import EVENT_TYPES, UPCASTERS, Upcaster, upcast
from schemas.values import BlobRef

INLINE_MAX_BYTES: Final = 64 * 1024


DATA: Final = b',"data":'
BLOB: Final = b'{"$blob":'
HEAD_FIELDS: Final = 6
ODD_NUMBER: Final = re.compile(rb"NaN|Infinity|[0-9][eE]\+?[0-9]{3}")
"""What may be read as a number that is none; also finds harmless text, which only costs the long way."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is known of an event before it is stored, beside its data."""

    event_id: str
    attempt: int
    epoch: int
    ordinal: int
    causation_id: str | None
    recorded_at: datetime


class Undecodable(Permanent):
    """Stored bytes that are no event this version knows."""


@cache
def _holds_any(cls: type[Event]) -> bool:
    """Say whether some field takes any JSON, so that the schema does not refuse a number that is none."""
    return '"additionalProperties": true' in json.dumps(cls.model_json_schema())


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    return all(map(_is_finite, value)) if isinstance(value, list) else True


def _json(text: bytes) -> Any:
    try:
        value = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as error:
        msg = f"not JSON: {error}"
        raise Undecodable(msg) from error
    if ODD_NUMBER.search(text) and not _is_finite(value):
        msg = "not JSON: a number is out of range"
        raise Undecodable(msg)
    return value


class Codec:
    """Encodes and decodes; pure but for blobs."""

    def __init__(
        self,
        blobs: Blobs,
        redactor: Redactor | None = None,
        inline_max_bytes: int = INLINE_MAX_BYTES,
        upcasters: Mapping[str, Upcaster] = UPCASTERS,
    ) -> None:
        """Use `blobs` for what is too large; mask with `redactor`."""
        self._blobs = blobs
        self._redactor = redactor or Redactor()
        self._inline_max = inline_max_bytes
        self._upcasters = upcasters

    def learn(self, secret: str) -> None:
        """Mask `secret` from now on."""
        self._redactor.learn(secret)

    def cleaned(self, text: str) -> str:
        """Return a text as it will be stored: secrets masked."""
        return str(pydantic_core.from_json(self._redactor.clean(pydantic_core.to_json(text))))

    def encode(self, head: Head, data: Event) -> bytes:
        """Return the bytes to store, secrets masked; large data goes to the blob store on the way. Raises `TooDeep`.

        The head holds nothing but ids, numbers and a time, so it is written without an encoder (a fifth of the cost).
        """
        body = self._redactor.clean(data.__pydantic_serializer__.to_json(data, exclude_defaults=True))
        if is_deeper(body, STORED_MAX_LEVELS):
            msg = f"{data.TYPE} has more than {STORED_MAX_LEVELS} levels of arrays and objects: give it what is nested less deep"
            raise TooDeep(msg)
        if len(body) > self._inline_max:
            body = b'{"$blob":%b}' % self._blobs.put(body, "application/json").model_dump_json().encode()
        cause = f'"causation_id":"{head.causation_id}",' if head.causation_id else ""
        text = (
            f'{{"event_id":"{head.event_id}","type":"{data.TYPE}","attempt":{head.attempt},"epoch":{head.epoch},'
            f'"ordinal":{head.ordinal},{cause}"recorded_at":"{head.recorded_at.isoformat(timespec="milliseconds")[:23]}Z"'
        )
        return text.encode() + DATA + body + b"}"

    def raw(self, body: bytes) -> dict[str, Any]:
        """Return the stored form as a dictionary with the blob, if any, put back; raises `Undecodable`."""
        raw = _json(body)
        if not isinstance(raw, dict) or not isinstance(raw.get("data"), dict) or not isinstance(raw.get("type"), str):
            msg = "not an envelope: want an object with 'type' and 'data'"
            raise Undecodable(msg)
        if "$blob" in raw["data"]:
            raw["data"] = self._from_blob(raw["data"]["$blob"])
        try:
            raw["type"], raw["data"] = upcast(raw["type"], raw["data"], self._upcasters)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            msg = f"{raw['type']} does not fit what its version was: {type(error).__name__}: {error}"
            raise Undecodable(msg) from error
        return raw

    def _from_blob(self, name: Any) -> dict[str, Any]:
        try:
            ref = BlobRef.model_validate(name)
        except ValidationError as error:
            msg = f"names no blob: {error}"
            raise Undecodable(msg) from error
        data = _json(self._blobs.get(ref))
        if not isinstance(data, dict):
            msg = f"blob {ref.sha256} holds no event's data"
            raise Undecodable(msg)
        return data

    def decode(self, subject: str, body: bytes, sequence: int) -> Envelope:
        """Return the event stored under `subject` as `body` at `sequence`; raises `Undecodable`."""
        split = body.find(DATA)
        if split > 0 and body.endswith(b"}") and not body.startswith(BLOB, split + len(DATA)):
            try:
                head = pydantic_core.from_json(body[:split] + b"}")
                cls = EVENT_TYPES.get(head["type"])
                is_plain = cls is not None and not (_holds_any(cls) and ODD_NUMBER.search(body))
                if cls is not None and is_plain and head["type"] not in self._upcasters:
                    data = cls.__pydantic_validator__.validate_json(body[split + len(DATA) : -1])
                    if _is_plain(head):
                        return _trusted(subject, sequence, head, data)
                    return self._envelope(subject, sequence, head, data)
            except (ValueError, KeyError, TypeError, Permanent):
                pass  # the long way says what is wrong
        return self._decode_slowly(subject, body, sequence)

    def _envelope(self, subject: str, sequence: int, head: dict[str, Any], data: Event) -> Envelope:
        parsed = parse_event(subject)
        where = parsed.aggregate
        return Envelope(
            run_id=where.run_id,
            rollout_id=where.rollout_id,
            actor=where.actor,
            key=where.key,
            place=parsed.place,
            sequence=sequence,
            causation_id=head.pop("causation_id", None),
            data=data,
            **head,
        )

    def _decode_slowly(self, subject: str, body: bytes, sequence: int) -> Envelope:
        """Decode what is old, large or broken, with an error that says what is wrong."""
        raw = self.raw(body)
        cls = EVENT_TYPES.get(raw["type"])
        if cls is None:
            msg = f"unknown event type {raw['type']!r} at sequence {sequence}: written by a newer version of gym-bus?"
            raise Undecodable(msg)
        try:
            data = cls.model_validate(raw.pop("data"))
            return self._envelope(subject, sequence, raw, data)
        except (ValidationError, TypeError, Permanent) as error:
            msg = f"event {raw.get('type', cls.TYPE)} at sequence {sequence} does not fit its schema: {error}"
            raise Undecodable(msg) from error


def _is_plain(head: dict[str, Any]) -> bool:
    """Say whether the head is what `encode` writes, so that it need not be validated field by field (a third of the cost)."""
    known = len(head) - ("causation_id" in head)
    return (
        known == HEAD_FIELDS
        and type(head["event_id"]) is str
        and type(head["attempt"]) is int
        and type(head["epoch"]) is int
        and type(head["ordinal"]) is int
        and type(head["recorded_at"]) is str
        and type(head.get("causation_id", "")) is str
        and head["recorded_at"].endswith("Z")
    )


def _trusted(subject: str, sequence: int, head: dict[str, Any], data: Event) -> Envelope:
    parsed = parse_event(subject)
    where = parsed.aggregate
    return Envelope.unchecked(
        event_id=head["event_id"],
        type=head["type"],
        run_id=where.run_id,
        rollout_id=where.rollout_id,
        attempt=head["attempt"],
        actor=where.actor,
        key=where.key,
        epoch=head["epoch"],
        ordinal=head["ordinal"],
        causation_id=head.get("causation_id"),
        recorded_at=datetime.fromisoformat(head["recorded_at"]),
        data=data,
        place=parsed.place,
        sequence=sequence,
    )
