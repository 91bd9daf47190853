"""The bounds of one box's proxy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EgressBounds:
    """`connections` at once; `head_bytes` of a request; seconds for its head, a name, a connection, silence, and all of it."""

    connections: int = 64
    head_bytes: int = 16 * 1024
    head_s: float = 10.0
    resolve_s: float = 5.0
    connect_s: float = 10.0
    idle_s: float = 120.0
    total_s: float = 3600.0
    attempts: int = 1000
