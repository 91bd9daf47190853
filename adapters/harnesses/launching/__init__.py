"""Launching: one command in a machine, run once, to its end, with a receipt. `launch` is our side, `supervisor` the machine's."""

from __future__ import annotations

from adapters.harnesses.launching.launch import Launch, LaunchBox, LaunchUnknown, Unlaunchable, launchable, prepare
from adapters.harnesses.launching.order import Brought, Order
from adapters.harnesses.launching.receipt import Receipt

__all__ = [
    "Brought",
    "Launch",
    "LaunchBox",
    "LaunchUnknown",
    "Order",
    "Receipt",
    "Unlaunchable",
    "launchable",
    "prepare",
]
