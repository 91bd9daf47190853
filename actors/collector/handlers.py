"""What the collector does outside: loading tasks, conducting runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from actors.collector import plan
from actors.collector.conductor import Conductor, StartDrive, rollouts_of
from actors.collector.replaying import with_recorded_inputs
from actors.collector.room import Admission, Look
from actors.collector.run import AwaitStore, Conduct, MakePlan, RunState, never_started
from gym_bus.blobs import Blobs
from gym_bus.errors import GymBusError
from gym_bus.event_log import Draft
from gym_bus.runtime.drive import Drive, Outcome
from schemas.config import TasksetConfig
from schemas.events import RunResumed, RunStarted
from schemas.machines import Unfit
from schemas.sandboxes import NoImage
from schemas.tasks import Task
from schemas.values import Failure

STORE_POLL_S: Final = 1.0


class RunHandlers:
    """The handlers of a run's effects."""

    def __init__(
        self,
        load_tasks: Callable[[TasksetConfig], Awaitable[list[Task]]],
        blobs: Blobs,
        start: StartDrive,
        look: Look,
    ) -> None:
        """Load tasks with `load_tasks`, keep plans in `blobs`, run rollouts with `start` while `look` sees room in the log."""
        self._load_tasks = load_tasks
        self._blobs = blobs
        self._start = start
        self._look = look

    async def make_plan(self, drive: Drive[RunState], effect: MakePlan) -> Outcome:  # noqa: ARG002  all is in the state
        """Load and select the tasks, store the plan, state the start; or state why there is nothing to run."""
        state = drive.state
        try:
            tasks = await self._load_tasks(state.request.config.taskset)
            chosen = plan.select(tasks, state.request.config)
            plan.check(chosen, state.request.config)
            ref = await asyncio.to_thread(self._blobs.put, plan.dump(chosen), "application/jsonl")
        except (GymBusError, NoImage, Unfit) as error:
            failure = Failure(kind="internal", message=str(error), stage="seed", terminal=True)
            return never_started(state, failure)
        started = RunStarted(
            plan=ref,
            tasks=len(chosen),
            planned=len(chosen) * state.request.config.num_repeats,
            shards=state.request.config.shards,
            taskset_digest=plan.digest(chosen),
            model=state.request.config.model_label,
        )
        return Draft(started, state.request_id)

    async def conduct(self, drive: Drive[RunState], effect: Conduct) -> Outcome:  # noqa: ARG002  all is in the state
        """Go on with the window; make it from the log if this process does not have it yet."""
        state = drive.state
        if drive.held is None and state.started:
            content = await asyncio.to_thread(self._blobs.get, state.started.plan)
            planned = await asyncio.to_thread(rollouts_of, content, state.request.config)
            rollouts = await asyncio.to_thread(with_recorded_inputs, planned, state.request.config)
            new = Conductor(drive.shell, drive, self._start, Admission(self._look, drive.shell.clock), rollouts)
            await new.recover()
            drive.held = new
        return await cast("Conductor", drive.held).conduct()

    async def await_store(self, drive: Drive[RunState], effect: AwaitStore) -> Outcome:  # noqa: ARG002  all is in the state
        """Look at the store until it has room."""
        while (await self._look()).refusal:  # noqa: ASYNC110  the store tells nobody that it has room again
            await asyncio.sleep(STORE_POLL_S)
        paused_id = drive.state.paused_id or drive.state.request_id
        return Draft(RunResumed(request_id=paused_id, reason="the store has room again"), paused_id)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {MakePlan: self.make_plan, Conduct: self.conduct, AwaitStore: self.await_store}
