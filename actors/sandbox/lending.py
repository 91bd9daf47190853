"""Who has a machine: its owner, which is the aggregate that asked for it, or one borrower at a time, with a right that ends.

Only the sandbox actor ever holds the machine itself. Who asks is known by the subject of the request, never by what it says. A right is
a number that grows each time the machine is lent; with an older one nothing is started. What is under way when a right ends is
finished, and what was wanted to be kept is kept before the next command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from gym_bus.event_log import Draft
from schemas.base import Frozen
from schemas.envelope import Envelope
from schemas.events import (
    CheckpointFailed,
    LaunchFailed,
    SandboxGiveBackRequested,
    SandboxGivenBack,
    SandboxLendRequested,
    SandboxLent,
    SandboxRequestRefused,
    ToolCallFailed,
)
from schemas.values import Failure, Party

REFUSALS: Final[Mapping[str, type[ToolCallFailed | CheckpointFailed | LaunchFailed]]] = {
    "command": ToolCallFailed,
    "checkpoint": CheckpointFailed,
    "launch": LaunchFailed,
}
NOT_YOURS: Final = "only the owner of a sandbox may ask this; a borrower gives it back"


class Asked(Frozen):
    """A change of hands that is still to be answered: `to` whom it is lent, or with which `right` it is given back.

    `what` is `other` for what only an owner could ask, and somebody else did.
    """

    request_id: str
    asker: Party
    what: Literal["lend", "give_back", "other"]
    to: Party | None = None
    right: int = 0


class Refused(Frozen):
    """A command, a launch or a checkpoint that is not to be had, and has not been told so yet."""

    request_id: str
    what: Literal["command", "checkpoint", "launch"]
    failure: Failure

    def draft(self) -> Draft:
        """Return the answer."""
        return Draft(REFUSALS[self.what](request_id=self.request_id, failure=self.failure), self.request_id)


class Lending(Frozen):
    """Who has a machine: `borrower` with `right`, or its `owner`; `asked` and `refused` are to be answered."""

    owner: Party
    borrower: Party | None = None
    right: int = 0
    asked: tuple[Asked, ...] = ()
    refused: tuple[Refused, ...] = ()

    def refusal(self, asker: Party, right: int | None) -> Failure | None:
        """Say why nothing is run for `asker`, who names `right`; None if it has the machine."""
        if asker == (self.borrower or self.owner) and right == (self.right if self.borrower else None):
            return None
        if asker == self.owner:
            if self.borrower is None:
                return _no("the sandbox is its owner's: a right is a borrower's")
            return _no(f"the sandbox is lent to {_name(self.borrower)}; take it back first")
        is_older = right is not None and (right < self.right or (right == self.right and self.borrower is None))
        if is_older:
            message = f"the right {right} has ended; nothing was started"
            return Failure(kind="stale", message=message, stage="tool")
        return _no(f"the sandbox is not lent to {_name(asker)} with this right")

    def knows(self, request_id: str) -> bool:
        """Say whether the request is waiting for its answer already."""
        is_asked = any(asked.request_id == request_id for asked in self.asked)
        return is_asked or any(refused.request_id == request_id for refused in self.refused)

    def refuses(self, request_id: str, what: Literal["command", "checkpoint", "launch"], failure: Failure) -> Lending:
        """Note what will be answered so."""
        refused = Refused(request_id=request_id, what=what, failure=failure)
        return self.replaced(refused=(*self.refused, refused))

    def is_asked(self, event: Envelope) -> Lending:
        """Note a request to change hands, or one that is not its writer's to make."""
        request_id, asker = event.event_id, asker_of(event)
        match event.data:
            case SandboxLendRequested(borrower=to):
                asked = Asked(request_id=request_id, asker=asker, what="lend", to=None if to == self.owner else to)
            case SandboxGiveBackRequested(right=right):
                asked = Asked(request_id=request_id, asker=asker, what="give_back", right=right)
            case _:
                asked = Asked(request_id=request_id, asker=asker, what="other")
        return self.replaced(asked=(*self.asked, asked))

    def is_answered(self, request_id: str) -> Lending:
        """Forget a request that has its answer."""
        return self.replaced(
            asked=tuple(asked for asked in self.asked if asked.request_id != request_id),
            refused=tuple(refused for refused in self.refused if refused.request_id != request_id),
        )

    def has_changed(self, data: SandboxLent | SandboxGivenBack) -> Lending:
        """Note who has the machine now."""
        borrower = data.borrower if isinstance(data, SandboxLent) else None
        return self.is_answered(data.request_id).replaced(borrower=borrower, right=data.right)

    def answers(self, gone: str | None, *, is_ready: bool) -> list[Draft]:
        """Return the answers that are due, one change of hands at a time; `gone` says why there is nothing left to lend."""
        drafts = [refused.draft() for refused in self.refused]
        if self.asked and (gone or is_ready or self.asked[0].what == "other"):
            first = self.asked[0]
            drafts.append(Draft(self._answer(first, gone), first.request_id))
        return drafts

    def _answer(self, asked: Asked, gone: str | None) -> SandboxLent | SandboxGivenBack | SandboxRequestRefused:
        """Return what becomes of a request; it is judged when its turn comes, not when it was heard."""
        request_id = asked.request_id
        failure = self._why_not(asked)
        if not failure and gone:
            failure = Failure(kind="sandbox_lost", message=gone, stage="tool")
        if failure:
            return SandboxRequestRefused(request_id=request_id, failure=failure)
        if asked.to:
            return SandboxLent(request_id=request_id, borrower=asked.to, right=self.right + 1)
        is_taken = asked.what == "lend"
        return SandboxGivenBack(request_id=request_id, borrower=self.borrower, right=self.right, is_taken=is_taken)

    def _why_not(self, asked: Asked) -> Failure | None:
        if asked.what == "give_back":
            if asked.asker == self.owner:
                return _no("the owner of a sandbox closes it, or takes it back by lending it to nobody")
            return self.refusal(asked.asker, asked.right)
        return None if asked.what == "lend" and asked.asker == self.owner else _no(NOT_YOURS)


def asker_of(event: Envelope) -> Party:
    """Return who wrote an event: what its subject says."""
    return Party.unchecked(actor=event.actor, key=event.key)


def _no(message: str) -> Failure:
    return Failure(kind="not_lent", message=message, stage="tool")


def _name(party: Party) -> str:
    return f"{party.actor} {party.key}"
