"""`python -m gym_bus.cli` is `gym-bus`."""

from __future__ import annotations

from gym_bus.cli import main

main()
