"""Programs that run in a machine beside its commands, as part of its pure machine: asked for, followed, answered once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gym_bus.event_log import Draft
from gym_bus.runtime.machine import Effect
from schemas.base import Frozen
from schemas.envelope import Envelope
from schemas.events import LaunchLost, LaunchRequested, LaunchTold
from schemas.values import Party

GIVEN_UP: Final = "the session gave the machine up before the program had ended"


class OpenLaunch(Frozen):
    """A program that was asked for by `asker`, in its epoch, and has no answer; `told` is how many pieces of its account are stated."""

    request_id: str
    request: LaunchRequested
    epoch: int
    asker: Party
    told: int = 0


@dataclass(frozen=True, slots=True)
class FollowLaunch(Effect):
    """Launch the program if that was not done, and wait for the next that there is to state about it."""

    launch: OpenLaunch


def opened(event: Envelope, request: LaunchRequested, asker: Party) -> OpenLaunch:
    """Return what a request opens."""
    return OpenLaunch(request_id=event.event_id, request=request, epoch=event.epoch, asker=asker)


def note_told(launches: Sequence[OpenLaunch], data: LaunchTold) -> tuple[OpenLaunch, ...]:
    """Note a piece of an account."""
    return tuple(
        launch.replaced(told=max(launch.told, data.part)) if launch.request_id == data.launch_id else launch
        for launch in launches
    )


def without(launches: Sequence[OpenLaunch], request_id: str) -> tuple[OpenLaunch, ...]:
    """Return those that are still open."""
    return tuple(launch for launch in launches if launch.request_id != request_id)


def pending(launches: Sequence[OpenLaunch]) -> Sequence[Effect]:
    """Return what follows each of them."""
    return tuple(FollowLaunch(f"launch-{launch.request_id}-{launch.told}", launch) for launch in launches)


def lost(launches: Sequence[OpenLaunch], reason: str) -> list[Draft]:
    """Return the answers for programs of which nothing more can be known."""
    return [Draft(LaunchLost(request_id=launch.request_id, reason=reason), launch.request_id) for launch in launches]
