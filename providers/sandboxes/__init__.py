"""Machines that commands run in: one module per provider, chosen by the configuration's type."""

from providers.sandboxes.base import Box, BoxLost, CreateFailed, ExecResult, SandboxProvider, SandboxUnavailable
from providers.sandboxes.ledger import Ledger
from providers.sandboxes.routing import PROVIDERS, make_provider

__all__ = [
    "PROVIDERS",
    "Box",
    "BoxLost",
    "CreateFailed",
    "ExecResult",
    "Ledger",
    "SandboxProvider",
    "SandboxUnavailable",
    "make_provider",
]
