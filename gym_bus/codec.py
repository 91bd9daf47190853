"""Envelopes to bytes and back: the one place that knows the stored form.

Stored is what the subject does not say already: run, rollout, actor and key come from the subject's tokens. Data over
`inline_max_bytes` goes to the blob store first, and the event names the blob in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    def encode(self, envelope: Envelope) -> bytes:
        """Return the bytes to store, secrets masked; large data goes to the blob store on the way.

        The head holds nothing but ids, numbers and a time, so it is written without an encoder (a fifth of the cost).
        """
        data = self._redactor.clean(envelope.data.model_dump_json(exclude_defaults=True).encode())
        if len(data) > self._inline_max:
            data = b'{"$blob":%b}' % self._blobs.put(data, "application/json").model_dump_json().encode()
        cause = f'"causation_id":"{envelope.causation_id}",' if envelope.causation_id else ""
        head = (
            f'{{"event_id":"{envelope.event_id}","type":"{envelope.type}","attempt":{envelope.attempt},'
            f'"epoch":{envelope.epoch},"ordinal":{envelope.ordinal},{cause}'
            f'"recorded_at":"{envelope.recorded_at.isoformat(timespec="milliseconds").removesuffix("+00:00")}Z","data":'
        )
        return b"%b%b}" % (head.encode(), data)

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
        parsed = parse_event(subject)
        raw = self.raw(body)
        cls = EVENT_TYPES.get(raw["type"])
        if cls is None:
            msg = f"unknown event type {raw['type']!r} at sequence {sequence}: written by a newer version of gym-bus?"
            raise Undecodable(msg)
        where = parsed.aggregate
        try:
            raw["data"] = cls.model_validate(raw["data"])
            return Envelope(
                run_id=where.run_id,
                rollout_id=where.rollout_id,
                actor=where.actor,
                key=where.key,
                place=parsed.place,
                sequence=sequence,
                causation_id=raw.pop("causation_id", None),
                **raw,
            )
        except ValidationError as error:
            msg = f"event {raw['type']} at sequence {sequence} does not fit its schema: {error}"
            raise Undecodable(msg) from error
