"""Sandboxes in E2B's microVMs: a kernel of their own, made of a template, anywhere that E2B runs.

A machine is found by its metadata, and lives no longer than it is renewed: see `providers.sandboxes.remote`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from providers.sandboxes.base import Capability
from providers.sandboxes.e2b.box import E2BBox
from providers.sandboxes.e2b.cloud import E2BCloud
from providers.sandboxes.e2b.machine import E2BMachine
from providers.sandboxes.remote.provider import RemoteProvider
from providers.sandboxes.remote.shell import place_of
from schemas.sandboxes import E2B

CAPABILITIES: Final[frozenset[Capability]] = frozenset(
    {"files", "snapshots", "detached", "egress", "pause", "users", "ports"}
)


class E2BProvider(RemoteProvider[E2BMachine, E2BBox]):
    """Makes microVMs of `config.template` with the key `api_key`."""

    def __init__(self, config: E2B, work_dir: Path, api_key: str | None) -> None:
        place = place_of(config, work_dir, user=config.user, admin="root")
        super().__init__(config, work_dir, E2BCloud(config, api_key), place, E2BBox, CAPABILITIES)
