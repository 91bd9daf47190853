"""Sandboxes of an OpenSandbox server: containers on a host of Docker or in a cluster of Kubernetes, wherever the server runs.

A machine is found by its metadata, and lives no longer than it is renewed: see `providers.sandboxes.remote`. With a policy of what may
be reached, the server puts a proxy beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from providers.sandboxes.base import Capability
from providers.sandboxes.opensandbox.box import NetworkedOpenSandboxBox, OpenSandboxBox
from providers.sandboxes.opensandbox.cloud import OpenSandboxCloud
from providers.sandboxes.opensandbox.machine import OpenSandboxMachine
from providers.sandboxes.remote.provider import RemoteProvider
from providers.sandboxes.remote.shell import place_of
from schemas.sandboxes import OpenSandbox

CAPABILITIES: Final[frozenset[Capability]] = frozenset({"files", "snapshots", "detached", "pause", "users", "ports"})

NETWORKED: Final[frozenset[Capability]] = CAPABILITIES | frozenset[Capability]({"egress"})


class OpenSandboxProvider(RemoteProvider[OpenSandboxMachine, OpenSandboxBox]):
    """Makes containers of `config.image` with the key `api_key`."""

    def __init__(self, config: OpenSandbox, work_dir: Path, api_key: str | None) -> None:
        is_networked = config.allow_hosts is not None
        super().__init__(
            config,
            work_dir,
            OpenSandboxCloud(config, api_key),
            place_of(config, work_dir, user=None, admin=None),
            NetworkedOpenSandboxBox if is_networked else OpenSandboxBox,
            NETWORKED if is_networked else CAPABILITIES,
        )
