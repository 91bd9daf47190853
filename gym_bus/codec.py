"""Envelopes to bytes and back: the one place that knows the stored form.

Stored is what the subject does not say already: run, rollout, actor and key come from the subject's tokens. Data over
`inline_max_bytes` goes to the blob store first, and the event names the blob in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pydantic_core
from pydantic import ValidationError

from gym_bus.blobs import Blobs
from gym_bus.errors import Permanent
from gym_bus.redaction import Redactor
from gym_bus.subjects import parse_event
from schemas.base import Event
from schemas.envelope import Envelope
from schemas.registry import EVENT_TYPES, UPCASTERS, Upcaster, upcast
from schemas.values import BlobRef

INLINE_MAX_BYTES: Final = 64 * 1024


DATA: Final = b',"data":'
BLOB: Final = b'{"$blob":'


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

    def encode(self, head: Head, data: Event) -> bytes:
        """Return the bytes to store, secrets masked; large data goes to the blob store on the way.

        The head holds nothing but ids, numbers and a time, so it is written without an encoder (a fifth of the cost).
        """
        body = self._redactor.clean(data.__pydantic_serializer__.to_json(data, exclude_defaults=True))
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
        try:
            raw = pydantic_core.from_json(body, allow_inf_nan=False)
        except ValueError as error:
            msg = f"not JSON: {error}"
            raise Undecodable(msg) from error
        if not isinstance(raw, dict) or not isinstance(raw.get("data"), dict) or not isinstance(raw.get("type"), str):
            msg = "not an envelope: want an object with 'type' and 'data'"
            raise Undecodable(msg)
        if "$blob" in raw["data"]:
            raw["data"] = pydantic_core.from_json(self._blobs.get(BlobRef.model_validate(raw["data"]["$blob"])))
        raw["type"], raw["data"] = upcast(raw["type"], raw["data"], self._upcasters)
        return raw

    def decode(self, subject: str, body: bytes, sequence: int) -> Envelope:
        """Return the event stored under `subject` as `body` at `sequence`; raises `Undecodable`."""
        split = body.find(DATA)
        if split > 0 and not body.startswith(BLOB, split + len(DATA)):
            try:
                head = pydantic_core.from_json(body[:split] + b"}")
                cls = EVENT_TYPES.get(head["type"])
                if cls is not None and head["type"] not in self._upcasters:
                    data = cls.__pydantic_validator__.validate_json(body[split + len(DATA) : -1])
                    return self._envelope(subject, sequence, head, data)
            except (ValueError, KeyError, TypeError):
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
        except (ValidationError, TypeError) as error:
            msg = f"event {raw.get('type', cls.TYPE)} at sequence {sequence} does not fit its schema: {error}"
            raise Undecodable(msg) from error
