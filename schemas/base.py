"""The two base classes of everything that is stored: frozen, and refusing what they do not know."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Frozen(BaseModel):
    """A value: immutable, compared by content, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_bytes="base64")


class Tagged(Frozen):
    """A member of a union told apart by `type`, which is therefore always written, also when defaults are left out."""

    type: str

    @model_serializer(mode="wrap")
    def _with_tag(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"type": self.type, **handler(self)}


class Event(Frozen):
    """One fact. `TYPE` is its name with its version, `KIND` the last token of its subject.

    A request is an event too: `TO` names the kind of actor that is asked, and its subject then ends in
    `cmd.<to>.<place>` instead of the kind.
    """

    TYPE: ClassVar[str]
    TO: ClassVar[str | None] = None

    @classmethod
    def subject_kind(cls) -> str:
        """Return the subject token of this type: its name without the version."""
        return cls.TYPE.rpartition(".")[0]


class Answer(Event):
    """An event that answers a request: `request_id` names the request's event."""

    request_id: str
