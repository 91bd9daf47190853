"""Whether somebody may still have something done in a machine, asked just before it is."""

from __future__ import annotations

from actors.sandbox.box_state import BoxState
from gym_bus.runtime.drive import Drive
from gym_bus.subjects import CLAIM, event_subject
from schemas.values import Failure, Party


async def refusal_of(drive: Drive[BoxState], asker: Party, epoch: int, right: int | None) -> Failure | None:
    """Say why not: `asker` has been replaced since the `epoch` in which it asked, or has no right to the machine."""
    claim = await drive.shell.log.bus.last(event_subject(drive.aggregate.sibling(asker.actor, asker.key), CLAIM))
    if claim and claim.sequence > epoch:
        message = f"{asker.actor} {asker.key} has another owner since; nothing was started"
        return Failure(kind="stale", message=message, stage="tool")
    return drive.state.lending.refusal(asker, right)
