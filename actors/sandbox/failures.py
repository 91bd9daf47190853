"""What it is called when a machine cannot be made."""

from __future__ import annotations

from typing import Final

from actors.sandbox.door import GatewayUnreachable
from adapters.harnesses.installing import InstallFailed
from adapters.harnesses.launching import Unlaunchable
from gym_bus.errors import GymBusError
from providers.sandboxes.base import SandboxUnavailable
from schemas.values import Failure

SEED_ERRORS: Final = (GymBusError, OSError, TimeoutError)
"""What may keep a machine from being made; anything else is a defect of ours."""


def seed_failure(error: Exception) -> Failure:
    """Return the failure that one of `SEED_ERRORS` is."""
    match error:
        case SandboxUnavailable():
            return Failure(kind="sandbox_unavailable", message=str(error), stage="seed")
        case Unlaunchable():
            return Failure(kind="unsupported", message=str(error), stage="seed", terminal=True)
        case GatewayUnreachable():
            return Failure(kind="gateway_unreachable", message=str(error), stage="seed")
        case InstallFailed():
            message = (
                f"the agent's program cannot be installed on this host: {str(error).removeprefix('install_failed: ')}"
            )
            return Failure(kind="sandbox_unavailable", message=message, stage="seed")
        case _:
            return Failure(kind="sandbox_create_failed", message=str(error) or "out of time", stage="seed")
