"""The composition root: which machine, which handlers and which places make a worker of each kind.

Routing is literal: a request's target aggregate, the events a kind waits for, and the handler of each effect are tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from actors.budget import RunSpending
from actors.collector.handlers import RunHandlers
from actors.collector.room import Look
from actors.collector.run import RunMachine
from actors.ended_runs import is_run_over
from actors.harness import settling
from actors.harness.handlers import ModelHandlers
from actors.harness.launched import LaunchedMachine
from actors.harness.remote import RemoteMachine
from actors.harness.remote_calls import RemoteHandlers
from actors.harness.remote_http import AskAgent, ask_agent
from actors.harness.session import SessionMachine
from actors.harness.solving import SolvingMachine
from actors.sandbox.admission import Admission
from actors.sandbox.box import BoxMachine
from actors.sandbox.box_state import ABOUT_A_MACHINE
from actors.sandbox.door import Doors
from actors.sandbox.grading import GradingHandlers, GradingMachine
from actors.sandbox.handlers import BoxHandlers
from actors.sandbox.installing import InstallHandlers
from actors.sandbox.launching import LaunchHandlers
from actors.sandbox.making import Maker
from actors.sandbox.tooling import Tooling
from actors.sandbox.warm import WarmPools
from actors.verifier.tool_call import CallRemote, ToolCallHandlers, ToolCallMachine
from actors.verifier.verdict import Grader, VerdictHandlers, VerdictMachine
from gym_bus.blobs import Blobs
from gym_bus.bus import Bus, Slots
from gym_bus.clock import Clock
from gym_bus.codec import Codec
from gym_bus.event_log import EventLog
from gym_bus.runtime.drive import Drive, Shell
from gym_bus.runtime.machine import Machine
from gym_bus.runtime.presence import Presence
from gym_bus.runtime.worker import Role, Worker
from gym_bus.settings import Settings
from gym_bus.subjects import ANY, CONTROL, AggregateId
from providers.models.base import Model
from providers.sandboxes.base import SandboxProvider
from schemas.base import Event
from schemas.config import ModelConfig, TasksetConfig
from schemas.envelope import Envelope
from schemas.events import (
    ActivationAsked,
    CheckpointFailed,
    CheckpointSaved,
    GradingDone,
    GradingFailed,
    GradingRequested,
    LaunchEnded,
    LaunchFailed,
    LaunchLost,
    LaunchTold,
    RequestParked,
    RunCancelled,
    RunRequested,
    SandboxCreated,
    SandboxDestroyed,
    SandboxFailed,
    SandboxGivenBack,
    SandboxLent,
    SandboxLost,
    SandboxRequestRefused,
    SessionClosed,
    SessionEndAsked,
    SessionFailed,
    SessionRequested,
    TaskToolCallCompleted,
    TaskToolCallFailed,
    TaskToolCallLost,
    TaskToolCallRequested,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallLost,
    VerdictFailed,
    VerdictIssued,
)
from schemas.harnesses import HarnessAgent, NopAgent, OracleAgent, RemoteAgent
from schemas.ids import WorkerKind, environment_key, grading_key, sandbox_key, session_key, verdict_key
from schemas.sandboxes import SandboxConfig
from schemas.tasks import Task
from tools.remote import call_remote

HEARS: Final[Mapping[WorkerKind, Sequence[tuple[str, type[Event]]]]] = {
    "collector": (
        ("harness", SessionClosed),
        ("harness", SessionFailed),
        ("harness", RequestParked),
        ("verifier", VerdictIssued),
        ("verifier", VerdictFailed),
        ("verifier", RequestParked),
    ),
    "harness": (
        ("sandbox", SandboxCreated),
        ("sandbox", SandboxFailed),
        ("sandbox", SandboxLost),
        ("sandbox", SandboxDestroyed),
        ("sandbox", SandboxLent),
        ("sandbox", SandboxGivenBack),
        ("sandbox", SandboxRequestRefused),
        ("sandbox", ToolCallCompleted),
        ("sandbox", ToolCallFailed),
        ("sandbox", ToolCallLost),
        ("sandbox", CheckpointSaved),
        ("sandbox", CheckpointFailed),
        ("sandbox", LaunchTold),
        ("sandbox", LaunchEnded),
        ("sandbox", LaunchFailed),
        ("sandbox", LaunchLost),
        ("sandbox", RequestParked),
        ("verifier", TaskToolCallCompleted),
        ("verifier", TaskToolCallFailed),
        ("verifier", TaskToolCallLost),
        ("verifier", RequestParked),
        ("cli", ActivationAsked),
        ("cli", SessionEndAsked),
    ),
    "sandbox": (("harness", SessionClosed), ("harness", SessionFailed)),
    "verifier": (("sandbox", GradingDone), ("sandbox", GradingFailed), ("sandbox", RequestParked)),
}
HEARS_RUN: Final[Mapping[WorkerKind, Sequence[tuple[str, type[Event]]]]] = {
    "collector": (),
    "harness": (("collector", RunCancelled),),
    "sandbox": (),
    "verifier": (),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside that the actors need; a test gives fakes, the host gives the real ones."""

    bus_for: Callable[[str], Bus]
    codec: Codec
    blobs: Blobs
    clock: Clock
    settings: Settings
    worker: str
    host_id: str
    presence: Presence
    model_for: Callable[[ModelConfig], Model]
    provider_for: Callable[[SandboxConfig], SandboxProvider]
    grader: Grader
    load_tasks: Callable[[TasksetConfig], Awaitable[list[Task]]]
    look_at_log: Look
    places: Callable[[], Awaitable[Sequence[str]]]
    note_run: Callable[[str, SandboxConfig], None] = lambda _run_id, _sandbox: None
    """Is told before a machine is made for a run."""
    call_remote: CallRemote = call_remote
    """Calls a tool of an MCP server that a task names."""
    ask_agent: AskAgent = ask_agent
    """Asks an agent that somebody runs somewhere else."""


Places = list[tuple[str, Slots]]


def make_worker(kind: WorkerKind, around: Surroundings) -> tuple[Worker, Places]:
    """Return the worker of `kind` and the places it takes requests at."""
    return BUILDERS[kind](around)


def _log(around: Surroundings, user: str) -> EventLog:
    return EventLog(
        around.bus_for(user),
        around.codec,
        around.clock,
        worker=around.worker,
        patience_s=around.settings.append_patience_s,
    )


def _shell(kind: WorkerKind, around: Surroundings, handlers: Mapping[type[Any], Any]) -> Shell:
    return Shell(
        kind=kind,
        log=_log(around, kind),
        clock=around.clock,
        handlers=handlers,
        is_alive=around.presence.is_alive,
        max_takeovers=around.settings.max_takeovers,
        snapshot_every=around.settings.snapshot_every,
    )


def _role(kind: WorkerKind, machine: Any, key_of: Callable[[int], str], *, slot_until_done: bool = False) -> Role:
    def target(asked: AggregateId, request: Envelope) -> AggregateId:
        return asked.sibling(kind, key_of(request.attempt))

    def make(shell: Shell, where: AggregateId, request: Envelope) -> Drive[Any]:
        return Drive(shell, machine, where, request.attempt, request)

    return Role(kind, HEARS[kind], HEARS_RUN[kind], target, make, slot_until_done)


def _collector(around: Surroundings) -> tuple[Worker, Places]:
    def start(drive: Drive[Any]) -> None:
        worker.start(drive)

    handlers = RunHandlers(around.load_tasks, around.blobs, start, around.look_at_log)
    shell = _shell("collector", around, handlers.table())
    role = _role("collector", RunMachine(), lambda _: "_")

    def make(shell: Shell, where: AggregateId, request: Envelope) -> Drive[Any]:
        drive = role.make(shell, where, request)
        # A control request is for whoever gets it: an owner that still lives is fenced, so that nobody waits for a frozen one.
        drive.takes_from_living = not isinstance(request.data, RunRequested)
        return drive

    worker = Worker(replace(role, make=make), shell, around.presence, around.settings)
    return worker, [(ANY, Slots(around.settings.run_slots)), (CONTROL, Slots(around.settings.run_slots * 4))]


def _harness(around: Surroundings) -> tuple[Worker, Places]:
    model_log = _log(around, "model")
    handlers = ModelHandlers(around.model_for, RunSpending(model_log, around.clock))
    remote = RemoteHandlers(around.settings.data_dir, around.ask_agent)
    table = {**handlers.table(), **settling.TABLE, **remote.table()}
    shell = replace(_shell("harness", around, table), sibling_logs={"model": model_log})
    loops, programs, solutions, elsewhere = SessionMachine(), LaunchedMachine(), SolvingMachine(), RemoteMachine()

    def make(shell: Shell, where: AggregateId, request: Envelope) -> Drive[Any]:
        agent = request.data.agent if isinstance(request.data, SessionRequested) else None
        machine: Machine[Any] = loops
        if isinstance(agent, HarnessAgent):
            machine = programs
        elif isinstance(agent, OracleAgent | NopAgent):
            machine = solutions
        elif isinstance(agent, RemoteAgent):
            machine = elsewhere
        drive: Drive[Any] = Drive(shell, machine, where, request.attempt, request)
        drive.hears_unasked = lambda state: state.request.task.awaits_input_s is not None
        return drive

    role = replace(_role("harness", loops, session_key), make=make)
    return Worker(role, shell, around.presence, around.settings), [(ANY, Slots(around.settings.session_slots))]


def _sandbox(around: Surroundings) -> tuple[Worker, Places]:
    settings = around.settings
    admission = Admission(settings.box_memory_mib, settings.box_cpus)
    warm = WarmPools(around.provider_for, admission, around.worker, partial(is_run_over, around.bus_for("sandbox")))
    maker = Maker(around.provider_for, around.blobs, admission, warm, around.note_run)
    tooling = Tooling(settings.programs, settings.agent_python)
    handlers = BoxHandlers(maker, around.host_id, Doors(settings.data_dir), tooling)
    grading, installing = GradingHandlers(maker, around.blobs), InstallHandlers(maker, tooling)
    launching = LaunchHandlers(settings.data_dir, handlers.lost)
    table = {**handlers.table(), **installing.table(), **launching.table(), **grading.table()}
    shell = _shell("sandbox", around, table)
    role = replace(_role("sandbox", BoxMachine(), sandbox_key, slot_until_done=True), beside=warm.run)
    boxes, gradings = BoxMachine(), GradingMachine()

    def make(shell: Shell, where: AggregateId, request: Envelope) -> Drive[Any]:
        machine: Machine[Any] = gradings if isinstance(request.data, GradingRequested) else boxes
        drive: Drive[Any] = Drive(shell, machine, where, request.attempt, request)
        drive.on_broken = partial(maker.abandon, drive)
        drive.opens = lambda event: _box_of(where, event) == where  # of several machines of an attempt each has its own
        return drive

    worker = Worker(replace(role, target=_box_of, make=make), shell, around.presence, around.settings)
    return worker, [(ANY, Slots(around.settings.box_slots)), (around.host_id, Slots(around.settings.box_slots * 8))]


def _box_of(asked: AggregateId, request: Envelope) -> AggregateId:
    """Return the machine that a request is about: it says which of its attempt's."""
    if isinstance(request.data, GradingRequested):
        return asked.sibling("sandbox", grading_key(request.attempt))
    number = request.data.number if isinstance(request.data, ABOUT_A_MACHINE) else 1
    return asked.sibling("sandbox", sandbox_key(request.attempt, number))


def _verifier(around: Surroundings) -> tuple[Worker, Places]:
    calling = ToolCallHandlers(around.call_remote)
    shell = _shell("verifier", around, {**VerdictHandlers(around.grader).table(), **calling.table()})
    verdicts, calls = VerdictMachine(), ToolCallMachine()

    def make(shell: Shell, where: AggregateId, request: Envelope) -> Drive[Any]:
        machine: Machine[Any] = calls if isinstance(request.data, TaskToolCallRequested) else verdicts
        drive: Drive[Any] = Drive(shell, machine, where, request.attempt, request)
        drive.opens = lambda event: (
            _verdict_of(where, event) == where
        )  # of several calls of an attempt each has its own
        return drive

    role = replace(_role("verifier", verdicts, verdict_key), target=_verdict_of, make=make)
    return Worker(role, shell, around.presence, around.settings), [(ANY, Slots(around.settings.verdict_slots))]


def _verdict_of(asked: AggregateId, request: Envelope) -> AggregateId:
    """Return what a request to the verifier is about: a call of a task's tool, or the verdict."""
    if isinstance(request.data, TaskToolCallRequested):
        return asked.sibling("verifier", environment_key(request.attempt, request.data.number))
    return asked.sibling("verifier", verdict_key(request.attempt))


BUILDERS: Final[Mapping[WorkerKind, Callable[[Surroundings], tuple[Worker, Places]]]] = {
    "collector": _collector,
    "harness": _harness,
    "sandbox": _sandbox,
    "verifier": _verifier,
}
