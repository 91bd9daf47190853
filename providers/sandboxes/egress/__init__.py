"""What a sandbox may reach by name: an allow list, a proxy that keeps to it, and an account of everything that was tried."""

from providers.sandboxes.egress.attempts import Attempt, Attempts
from providers.sandboxes.egress.bounds import EgressBounds
from providers.sandboxes.egress.proxy import EgressProxy
from providers.sandboxes.egress.way import Egress

__all__ = ["Attempt", "Attempts", "Egress", "EgressBounds", "EgressProxy"]
