"""What writing one request or one answer keeps track of: the dialect it came in, what was left out, what is unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from providers.dialects.base import Unexpressible
from providers.dialects.messages.unknown import Unplaced
from schemas.conversation import CacheHint


@dataclass(slots=True)
class Writing:
    """`is_own` if it was read from this dialect; `dropped` are the paths of what changes no answer and was left out."""

    is_own: bool
    unknown: Unplaced
    dropped: list[str] = field(default_factory=list)

    def drop(self, path: str, value: object) -> None:
        """Note that `value` is left out, if there is one."""
        if value is not None and value != ():
            self.dropped.append(path)

    def refuse(self, path: str, value: object, reason: str) -> None:
        """Raise `Unexpressible` if there is a value."""
        if value is not None and value != ():
            raise Unexpressible(path, reason)

    def cache(self, target: dict[str, Any], hint: CacheHint | None, path: str) -> None:
        """Put a cache hint into a block or a tool."""
        if hint is None:
            return
        control: dict[str, Any] = {"type": "ephemeral"}
        if hint.ttl is not None:
            control["ttl"] = hint.ttl
        self.unknown.onto(control, f"{path}.cache_control")
        target["cache_control"] = control
