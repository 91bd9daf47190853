"""Running a task's tests in a fresh machine, on what an agent handed in: one request, one answer, and nothing left of the machine.

It is repeatable: whoever takes it over begins with another machine. Files come before tests, tests come last, and to a place of their
own in which nothing can lie already.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from actors.sandbox.cases import CASE_EXTRA_S, run_cases
from actors.sandbox.held import HeldBox
from actors.sandbox.making import Maker
from actors.sandbox.rewards import Rewards
from actors.sandbox.staging import contents_of, stage
from gym_bus.blobs import Blobs
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.runtime.machine import Effect
from providers.sandboxes.base import ExecResult, SandboxUnavailable
from providers.sandboxes.capabilities import WithDetached, WithSnapshots
from providers.sandboxes.phases import phase_of
from providers.sandboxes.snapshots import Selection, TooLarge, load
from providers.sandboxes.snapshots.handing_in import hand_in, laid_over, missing_of
from providers.sandboxes.snapshots.taking import store
from schemas.base import Event, Frozen
from schemas.cases import CaseResult
from schemas.envelope import Envelope
from schemas.events import GradingDone, GradingFailed, GradingRequested
from schemas.sandboxes import SandboxConfig, workspace_begins
from schemas.values import BlobRef, Failure

STAGED_WITHIN_S: Final = 1800.0
SERVICES_LAST_S: Final = 60.0
EVERYTHING: Final = ("**",)


@dataclass(frozen=True, slots=True)
class RunTests(Effect):
    """Make the machine, run the tests, end it."""


class GradingState(Frozen):
    """What is known of a grading."""

    request: GradingRequested
    request_id: str
    is_over: bool = False


class GradingMachine:
    """See `gym_bus.runtime.machine.Machine`."""

    state_type = GradingState
    opened_by: type[Event] = GradingRequested

    def begin(self, request: Envelope) -> GradingState:
        """Start with the request."""
        data = request.data
        if not isinstance(data, GradingRequested):
            raise TypeError(request.type)
        return GradingState(request=data, request_id=request.event_id)

    def evolve(self, state: GradingState, event: Envelope) -> GradingState:
        """Fold one event."""
        if isinstance(event.data, GradingDone | GradingFailed) and event.data.request_id == state.request_id:
            return state.replaced(is_over=True)
        return state

    def taken_over(self, state: GradingState) -> GradingState:
        """The machine is gone; the tests are run again in another one."""
        return state

    def decide(self, state: GradingState, now: datetime) -> Sequence[Draft]:  # noqa: ARG002  the handler's outcome is all there is
        """Nothing is decided without a result."""
        return ()

    def pending(self, state: GradingState) -> Sequence[Effect]:
        """Run the tests, once."""
        return () if state.is_over else (RunTests("grade"),)

    def is_done(self, state: GradingState) -> bool:
        """Say whether the result is out."""
        return state.is_over

    def crashed(self, state: GradingState, failure: Failure) -> Sequence[Draft]:
        """No result without a run."""
        if state.is_over:
            return ()
        failed = failure.replaced(kind="verifier_error", stage="verification")
        return (Draft(GradingFailed(request_id=state.request_id, failure=failed), state.request_id),)


@dataclass(frozen=True, slots=True)
class HandedIn:
    """How many files were handed in, how many things that were wanted were left out, and which artifacts are not there."""

    files: int = 0
    left_out: int = 0
    missing: tuple[str, ...] = ()


class _Refused(Exception):
    """What was handed in cannot be graded: that is the agent's doing, and no fault of a machine."""


class GradingHandlers:
    """The handler of grading."""

    def __init__(self, maker: Maker, blobs: Blobs) -> None:
        """Run tests in what `maker` makes, on files in `blobs`."""
        self._maker = maker
        self._blobs = blobs

    async def grade(self, drive: Drive[GradingState], effect: RunTests) -> Outcome:  # noqa: ARG002  all is in the state
        """Run the tests; what goes wrong on the way is a failure, what was handed in is not."""
        request_id = drive.state.request_id
        try:
            async with asyncio.timeout(_longest_s(drive.state.request)):
                return Draft(await self._graded(drive), request_id)
        except _Refused as error:
            return Draft(GradingDone(request_id=request_id, refused=str(error)), request_id)
        except SandboxUnavailable as error:
            failure = Failure(kind="sandbox_unavailable", message=str(error), stage="verification")
        except (GymBusError, OSError, TimeoutError) as error:
            failure = Failure(kind="verifier_error", message=str(error) or "out of time", stage="verification")
        finally:
            self._maker.abandon(drive)
        return Draft(GradingFailed(request_id=request_id, failure=failure), request_id)

    async def _graded(self, drive: Drive[GradingState]) -> GradingDone:
        request, request_id = drive.state.request, drive.state.request_id
        held, _ = await self._maker.make(drive, request.sandbox)
        handed_in = await self._hand_in(held, request)
        if change := phase_of(request.sandbox, "verify"):
            await held.enter(change)
        for number, service in enumerate(request.services):
            if not isinstance(held.box, WithDetached):
                raise _unable(request.sandbox, "services")
            lasts_s = request.timeout_s + SERVICES_LAST_S
            await held.box.start(service, key=f"{request_id}/service-{number}", timeout_s=lasts_s)
        place = f"/tmp/tests-{re.sub(r'[^A-Za-z0-9-]', '-', drive.aggregate.label)}"  # noqa: S108  in the machine
        await stage(held.box, place, {path: text.encode() for path, text in request.tests.items()})
        if request.staged:
            await stage(held.box, request.staged.at, contents_of(request.staged))
        rewards = Rewards(held.box, request.rewards_in, request_id) if request.rewards_in else None
        if rewards:
            await rewards.begin()
        result = None
        if request.command is not None:
            command = f"TESTS={shlex.quote(place)}; export TESTS; {request.command}"
            result = await held.box.exec(command, key=request_id, timeout_s=request.timeout_s)
        cases = await run_cases(held.box, request.cases, request_id, place) if request.cases else ()
        done = _done(request_id, result, handed_in, cases)
        return await rewards.read(done) if rewards else done

    async def _hand_in(self, held: HeldBox, request: GradingRequested) -> HandedIn:
        """Put what was handed in into the machine; return what that was."""
        if request.files is None:
            return HandedIn(missing=missing_of(request.artifacts, ()))
        if not isinstance(held.box, WithSnapshots):
            raise _unable(request.sandbox, "files")
        try:
            ref, handed_in = await asyncio.to_thread(self._selected, request, request.files)
        except TooLarge as error:
            raise _Refused(str(error)) from error
        if workspace_begins(request.sandbox):
            await self._replace_workspace(held, request, ref)
        else:
            await held.box.restore(ref, self._blobs)
        return handed_in

    async def _replace_workspace(self, held: HeldBox, request: GradingRequested, ref: BlobRef) -> None:
        """Put what was handed in where a workspace begins as the image's: over that if it is files, in its place if it is all."""
        if not request.is_whole and request.artifacts != EVERYTHING:
            began = await held.keep("seed")
            ref = await asyncio.to_thread(self._over, began.snapshot, ref)
        await held.clear(f"{ref.sha256}/clear")
        await held.restore(ref)

    def _over(self, below: BlobRef, above: BlobRef) -> BlobRef:
        return store(laid_over(load(below, self._blobs), load(above, self._blobs)), self._blobs)

    def _selected(self, request: GradingRequested, files: BlobRef) -> tuple[BlobRef, HandedIn]:
        manifest, left_out = load(files, self._blobs), 0
        missing = missing_of(request.artifacts, [entry.path for entry in manifest.entries])
        if not request.is_whole:
            manifest, left_out = hand_in(manifest, Selection(request.artifacts))
            files = store(manifest, self._blobs)
        return files, HandedIn(sum(1 for entry in manifest.entries if entry.kind == "file"), left_out, missing)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {RunTests: self.grade}


def _unable(sandbox: SandboxConfig, what: str) -> SandboxUnavailable:
    msg = f"a sandbox of type {sandbox.type} cannot be given {what}: set `grading_sandbox` to one that can"
    return SandboxUnavailable(msg)


def _longest_s(request: GradingRequested) -> float:
    return STAGED_WITHIN_S + request.timeout_s + sum(case.timeout_s + CASE_EXTRA_S for case in request.cases)


def _done(
    request_id: str, result: ExecResult | None, handed_in: HandedIn, cases: tuple[CaseResult, ...]
) -> GradingDone:
    done = GradingDone(
        request_id=request_id,
        files=handed_in.files,
        left_out=handed_in.left_out,
        missing=handed_in.missing,
        cases=cases,
    )
    if result is None:
        return done
    return done.replaced(
        exit_code=result.exit_code,
        output=result.output,
        output_bytes=result.output_bytes,
        truncated=result.truncated,
        ended_by=result.ended_by,
        duration_s=round(result.duration_s, 4),
    )
