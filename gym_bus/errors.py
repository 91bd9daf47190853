"""The errors of gym-bus. Nothing else crosses a module's boundary.

Every message says what was wrong, where, and what to do about it.
"""

from __future__ import annotations


class GymBusError(Exception):
    """Base of all errors raised by gym-bus."""


class Retryable(GymBusError):
    """Something outside was not available; the same call may succeed later."""


class Permanent(GymBusError):
    """Bad input or a refused right: the same call will fail again."""


class Fenced(GymBusError):
    """Another worker is the writer of this aggregate now: stop silently, acknowledge nothing."""


class Corrupt(GymBusError):
    """The log contradicts itself: crash rather than continue."""


class BusUnavailable(Retryable):
    """The bus did not answer in time."""


class StoreFull(Retryable):
    """The bus has no room for another event."""


class TooDeep(Permanent):
    """What is to be stored is nested deeper than what can be read again; nothing of it has been stored."""


class BusRefused(Permanent):
    """The bus user has no right to this subject."""


class BadConfig(Permanent):
    """The configuration cannot be used; the message names the key."""


class BadTaskset(Permanent):
    """The tasks cannot be loaded; the message names the file and line, or the generator."""
