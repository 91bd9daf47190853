"""What the sandbox actor does for an agent's own program: launches it, tells what it writes while it runs, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from actors.gateway.grants import Grant, gateway_key, mint
from actors.sandbox.asking import refusal_of
from actors.sandbox.box_state import BoxState
from actors.sandbox.held import HeldBox
from actors.sandbox.launches import FollowLaunch, OpenLaunch
from adapters.harnesses.asking import Reached, activation_of
from adapters.harnesses.base import Plan, plan_for
from adapters.harnesses.launching import Launch, LaunchBox, LaunchUnknown, Receipt, launchable
from adapters.harnesses.running import Following, begin, written_before
from adapters.harnesses.table import harness_of
from adapters.harnesses.told import size_of, told
from adapters.harnesses.trajectory import Item
from gym_bus.errors import GymBusError, Permanent
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from providers.sandboxes.base import BoxLost
from schemas.events import LaunchEnded, LaunchFailed, LaunchLost, LaunchTold
from schemas.harnesses import ToldItem
from schemas.sandboxes import workspace_of
from schemas.values import Failure

LOOK_FIRST_S: Final = 1.0
LOOK_MAX_S: Final = 2.0
"""How long a program that was just launched, or said something, is left alone, and one that says nothing: longer and longer.

A look starts a process beside it: one at once took a fifth of the time that a program needs to begin.
"""
ITEMS_AT_ONCE: Final = 200
CHARS_AT_ONCE: Final = 400_000
STDERR_MAX_BYTES: Final = 4096
STDERR_READ_MAX_BYTES: Final = 1024 * 1024
BEGUN_WITHIN_S: Final = 120.0
UNKNOWN_MAX: Final = 50
TOLD_MAX_CHARS: Final = 16 * 1024 * 1024
ITEM_CHARS: Final = 64
"""What an item takes in the log beside its words."""
ASIDES: Final = frozenset({"session", "complained", "finished"})
"""What other files than the first may add to an account: the conversation is told by that one."""

Lost = Callable[[Drive[BoxState], BoxLost], Awaitable[Draft]]


class Unready(Permanent):
    """What a launch needs could not be made in its sandbox, and nothing was run."""


class Spoilt(Unready):
    """The same, because what an agent left in there is in the way of its next launch."""

    def __init__(self, reason: object) -> None:
        """Say whose doing it was."""
        super().__init__(f"what the agent left in its sandbox is in the way of going on: {reason}")


@dataclass
class GoingLaunch:
    """A launch in the hands of the process that holds its machine: what was read of it and not told yet, and how it ended."""

    launch: Launch
    first: Following
    others: list[Following]
    goes_on: bool
    waiting: list[ToldItem] = field(default_factory=list)
    receipt: Receipt | None = None
    asides: list[ToldItem] = field(default_factory=list)
    pause_s: float = LOOK_FIRST_S
    chars: int = 0
    is_read: bool = False

    @classmethod
    async def begun(
        cls, box: LaunchBox, plan: Plan, launch_id: str, cwd: str, timeout_s: float, *, goes_on: bool = False
    ) -> GoingLaunch:
        """Launch what is planned, in the directory `cwd`; raises `Permanent`, `BoxLost`.

        If it `goes_on` with a session, what its files hold by now was told in the activation before.
        """
        told = [await written_before(box, trace, launch_id) if goes_on else None for trace in plan.traces]
        launch = await begin(box, plan, launch_id, cwd=cwd, timeout_s=timeout_s)
        first, *others = [Following(launch, trace, place) for trace, place in zip(plan.traces, told, strict=True)]
        return cls(launch, first, others, goes_on)

    async def look(self) -> None:
        """Wait a while or until it has ended, and take in a piece of what it has written; raises `LaunchUnknown`, `BoxLost`.

        One that writes faster than that is not waited for.
        """
        if self.receipt is None:
            self.receipt = await self.launch.wait(0 if self.first.is_behind else self.pause_s)
        piece = await self.first.next_piece()
        if piece is not None:
            await self._keep(piece)
            self.pause_s = LOOK_FIRST_S
        elif self.receipt is not None:
            await self._keep(await self.first.rest())
            for other in self.others:
                self.asides += [item for item in await _all_told(await other.rest()) if item.kind in ASIDES]
            self.is_read = True
        else:
            self.pause_s = min(2 * self.pause_s, LOOK_MAX_S)

    async def _keep(self, items: Sequence[Item]) -> None:
        """Keep what is to be told, so much that a log can hold it; that there was more is told at the end."""
        for item in await _all_told(items):
            self.chars += size_of(item) + ITEM_CHARS
            if self.chars > TOLD_MAX_CHARS:
                self.first.is_cut = True
                return
            self.waiting.append(item)

    def taken(self) -> tuple[ToldItem, ...]:
        """Return what is to be told next, so much that an event holds it."""
        size, count = 0, 0
        for item in self.waiting[:ITEMS_AT_ONCE]:
            size += size_of(item)
            if count and size > CHARS_AT_ONCE:
                break
            count += 1
        taken, self.waiting = tuple(self.waiting[:count]), self.waiting[count:]
        return taken

    async def ended(self, request_id: str, receipt: Receipt) -> LaunchEnded:
        """Return how it ended; raises `Unready`, `BoxLost`."""
        if receipt.ended_by == "unready":
            raise (Spoilt if self.goes_on else Unready)(f"{receipt.error} (a file that the agent needs there)")
        followings = [self.first, *self.others]
        start = max(0, min(receipt.stderr.kept, STDERR_READ_MAX_BYTES) - STDERR_MAX_BYTES)
        said = await self.launch.read("stderr", start, max_bytes=STDERR_MAX_BYTES)
        unknown = sum((following.reader.unknown for following in followings), Counter[str]())
        return LaunchEnded(
            request_id=request_id,
            ended_by=receipt.ended_by,
            exit_code=receipt.exit_code,
            signal=receipt.signal,
            duration_s=round(receipt.duration_s, 4),
            descendants_killed=receipt.descendants_killed,
            is_clean=receipt.is_clean,
            stdout_bytes=receipt.stdout.bytes,
            stderr_bytes=receipt.stderr.bytes,
            stderr="\n".join(filter(None, (said.decode(errors="replace"), receipt.error))).replace("\0", "\ufffd"),
            asides=tuple(self.asides[-ITEMS_AT_ONCE:]),
            unknown=dict(unknown.most_common(UNKNOWN_MAX)),
            faults=sum(following.reader.faults.total for following in followings),
            is_cut=any(following.is_cut for following in followings),
        )


class LaunchHandlers:
    """The handler of a launch. Tokens for the gateway are signed with the key under `data_dir`, as the gateway's own are."""

    def __init__(self, data_dir: Path, lost: Lost) -> None:
        """State with `lost` that a machine is gone."""
        self._keys = data_dir / "keys"
        self._lost = lost

    async def follow(self, drive: Drive[BoxState], effect: FollowLaunch) -> Outcome:
        """Return the next that there is to state."""
        launch, held = effect.launch, drive.held
        request_id = launch.request_id
        try:
            if request_id not in held.launches:
                if failure := await refusal_of(drive, launch.asker, launch.epoch, launch.request.right):
                    return Draft(LaunchFailed(request_id=request_id, failure=failure), request_id)
                held.launches[request_id] = await self._begun(drive, held, launch)
            return await _next(held.launches[request_id], request_id, launch.told + 1)
        except BoxLost as error:
            return await self._lost(drive, error)
        except Permanent as error:
            if request_id in held.launches and (launch.told or not isinstance(error, Unready)):
                return Draft(LaunchLost(request_id=request_id, reason=str(error)), request_id)
            return Draft(LaunchFailed(request_id=request_id, failure=_failure_of(error)), request_id)
        except (GymBusError, TimeoutError) as error:  # also while it was being launched: then it may run
            reason = str(error) or f"the agent's program was not launched in {BEGUN_WITHIN_S:g} s"
            return Draft(LaunchLost(request_id=request_id, reason=reason), request_id)

    async def _begun(self, drive: Drive[BoxState], held: HeldBox, launch: OpenLaunch) -> GoingLaunch:
        request, url = launch.request, drive.state.gateway_url
        if url is None:
            msg = "the sandbox was asked for without a door to the model gateway, which the agent's program needs"
            raise Permanent(msg)
        conversation = drive.aggregate.sibling("model", launch.asker.key)
        key = await asyncio.to_thread(gateway_key, self._keys)
        token = mint(key, Grant(conversation, drive.attempt, request.activation, request.number))
        workspace = workspace_of(drive.state.request.sandbox)
        activation = activation_of(
            request.agent,
            request.prompt,
            request.system_prompt,
            request.model,
            f"{url}/a/{token}",
            drive.state.request.sandbox,
            Reached(
                request.mcp_grants, request.has_tool_command, request.required, request.mcp_servers, request.skills_dir
            ),
            request.resume,
        )
        plan, box, goes_on = plan_for(harness_of(request.agent), activation), launchable(held.box), bool(request.resume)
        launch_id, timeout_s = f"l{launch.request_id}", request.timeout_s
        try:
            async with asyncio.timeout(BEGUN_WITHIN_S):
                return await GoingLaunch.begun(box, plan, launch_id, workspace, timeout_s, goes_on=goes_on)
        except Permanent as error:
            if not goes_on:
                raise
            raise Spoilt(error) from error

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {FollowLaunch: self.follow}


async def _all_told(items: Sequence[Item]) -> list[ToldItem]:
    """Return items as the log keeps them; many are written in a thread, so that they hold up nobody else."""
    if len(items) <= ITEMS_AT_ONCE:
        return list(map(told, items))
    return await asyncio.to_thread(lambda: list(map(told, items)))


def _failure_of(error: Permanent) -> Failure:
    """Return why nothing was launched: no other attempt can help but where it was the agent's own doing."""
    if isinstance(error, Spoilt):
        return Failure(kind="agent_failed", message=str(error), stage="agent")
    return Failure(kind="unsupported", message=str(error), stage="seed", terminal=True)


async def _next(going: GoingLaunch, request_id: str, part: int) -> Draft:
    """Return the next piece of a program's account, or its end; raises `LaunchUnknown`, `BoxLost`."""
    while not going.waiting and not going.is_read:
        await going.look()
    if items := going.taken():
        return Draft(LaunchTold(launch_id=request_id, part=part, items=items), request_id, str(part))
    if going.receipt is None:
        msg = f"launch {request_id} has neither written anything nor ended"
        raise LaunchUnknown(msg)
    ended = await going.ended(request_id, going.receipt)
    with contextlib.suppress(GymBusError):  # the machine's end removes it too
        await going.launch.close()
    return Draft(ended, request_id)
