"""Snapshots of a sandbox's files: content-addressed, incremental, and never following where an agent points. Files, never processes."""

from providers.sandboxes.snapshots.limits import SnapshotLimits, TooLarge
from providers.sandboxes.snapshots.restoring import NotEmpty, restore
from providers.sandboxes.snapshots.selecting import BadPattern, Selection
from providers.sandboxes.snapshots.taking import Taken, load, take

__all__ = ["BadPattern", "NotEmpty", "Selection", "SnapshotLimits", "Taken", "TooLarge", "load", "restore", "take"]
