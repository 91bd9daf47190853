"""Sessions of agents' own programs that are given a further input: the same session of the program goes on, whoever is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.harnesses.table import HARNESSES, installed_for
from providers.dialects.catalog import DIALECTS
from schemas.conversation import Text
from schemas.envelope import Envelope
from schemas.events import (
    ActivationCompleted,
    ActivationStarted,
    CheckpointSaved,
    LaunchEnded,
    LaunchLost,
    LaunchRequested,
    LaunchTold,
    ModelCallCompleted,
    ModelCallRecalled,
    RolloutFinished,
    SandboxLost,
    SandboxRequested,
    SessionClosed,
)
from schemas.harnesses import Program
from tests.bench.stage import Stage, stage
from tests.e2e.test_agent_programs import asked as command_line
from tests.e2e.test_agent_programs import model_at, rows
from tests.e2e.test_killed_programs import CODEX, HOSTS, PI, SETTINGS, config, ended, killed, left_of, questions
from tests.support.configured_agents import configuration_of
from tests.support.real_run import REPOSITORY, RealRun
from tests.support.two_inputs import MAKING_SECOND, SECOND_INPUT, TwoInputs, write_two_inputs
from tests.support.upstream import Upstream

pytestmark = pytest.mark.filterwarnings("ignore:subprocess:ResourceWarning")  # a server outlives whoever started it

SLOW: Final = (f"sleep 6; {MAKING_SECOND}", "cat bye.txt")
"""Commands of the second input, of which the first is under way for long enough to be killed in the middle."""


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[RealRun]:
    """Give a data directory; programs are installed once for all tests of this checkout."""
    made = RealRun(tmp_path, {"GYM_BUS_PROGRAMS_DIR": str(REPOSITORY / ".gym-bus")})
    write_two_inputs(tmp_path)
    yield made
    await asyncio.to_thread(made.stop)


@pytest.mark.parametrize(
    "name",
    [
        "codex_agent",
        "python_agent",
        *(
            pytest.param(name, marks=pytest.mark.harness)
            for name in (
                "pi_agent",
                "claude_code_agent",
                "opencode_agent",
                "simple_strands_agent",
                "prime_agent",
                "acp_agent",
            )
        ),
    ],
)
async def test_a_program_is_given_a_further_input(run: RealRun, name: str) -> None:
    """Its own session goes on: the model sees all that was said before, and each turn is told once, with its activation."""
    dialect = installed_for(name).dialect
    more = await configuration_of(name, run.directory)
    async with model_at(dialect, TwoInputs(dialect)) as (url, upstream):
        done = await asyncio.to_thread(run.cli, *command_line(run, name, url, *more), timeout_s=400)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = [json.loads(line) for line in (run.directory / "out/rollouts.jsonl").read_text().splitlines()]
    assert row["reward"] == 1.0
    launches = rows(run, "select activation, state, replies, tool_calls, session_id from launches order by activation")
    assert [(r["activation"], r["state"], r["replies"], r["tool_calls"]) for r in launches] == [
        (1, "ended", 3, 2),
        (2, "ended", 2, 1),
    ]
    told = rows(
        run, "select activation, count(*) as n from trajectory where kind = 'tool_asked' group by all order by all"
    )
    assert [(r["activation"], r["n"]) for r in told] == [(1, 2), (2, 1)]
    calls = rows(run, "select activation, count(*) as n from model_calls group by all order by all")
    assert [(r["activation"], r["n"]) for r in calls] == [(1, 3), (2, 2)]
    turns = [said(body, dialect) for body in upstream.bodies if "input" in body or "messages" in body]
    assert [SECOND_INPUT in words for words in turns] == [False, False, False, True, True]
    assert "Make hello.txt, in two steps." in turns[3], "the first conversation is what the second goes on with"
    assert "The file hello.txt is there now." in turns[3]
    activations = rows(run, "select activation, state, launches, turns from activations order by activation")
    assert [tuple(r.values()) for r in activations] == [(1, "completed", 1, 3), (2, "completed", 1, 2)]
    held = run.cli("doctor")
    assert held.returncode == 0, held.stdout


async def test_a_program_that_cannot_go_on_is_refused_before_anything_is_started(run: RealRun) -> None:
    """It is said which can, and no model is asked. Where others of its tasks can be done, its session refuses this one."""
    async with model_at("chat", TwoInputs("chat")) as (url, upstream):
        done = await asyncio.to_thread(run.cli, *command_line(run, "mini_swe_agent", url), timeout_s=200)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "mini_swe_agent cannot go on with its session" in done.stderr
    assert not run.pids()
    assert not [body for body in upstream.bodies if "tools" in body]


def said(body: dict[str, Any], dialect: Any) -> str:
    """Return all the words of a request."""
    turns = DIALECTS[dialect].read_request(body).turns
    return "\n".join(part.text for turn in turns for part in turn.parts if isinstance(part, Text))


@asynccontextmanager
async def going(agent: Program, second: tuple[str, ...] = SLOW) -> AsyncIterator[tuple[Stage, Upstream]]:
    """Give processes and a model, with a run of one rollout of two inputs that has been asked for."""
    dialect = HARNESSES[agent.type].dialect
    async with (
        model_at(dialect, TwoInputs(dialect, second=second)) as (url, upstream),
        stage(hosts=0, projector=False, extra=SETTINGS) as place,
    ):
        for host_id, kinds in HOSTS.items():
            place.spawn(host_id, kinds)
        await place.ready()
        await place.request(config(agent, url, write_two_inputs(place.data_dir), max_restores=3))
        yield place, upstream


async def seen(place: Stage, what: Callable[[Envelope], bool]) -> None:
    """Wait until there is such an event."""
    async with asyncio.timeout(120):
        while not [event async for event in place.log.read("gym.evt.0.>") if what(event)]:
            await asyncio.sleep(0.02)


def is_between(event: Envelope) -> bool:
    """Say whether the first input has been dealt with, and what the next begins with was kept."""
    return isinstance(event.data, CheckpointSaved) and event.data.home is not None


def has_begun_the_second(event: Envelope) -> bool:
    """Say whether the program has told of its first command for the second input, which takes long."""
    return isinstance(event.data, LaunchTold) and any(item.id == "second-call0" for item in event.data.items)


UNDISTURBED: Final[dict[str, list[list[str]]]] = {}


async def undisturbed(agent: Program) -> list[list[str]]:
    """Return what the model is asked when nobody is killed."""
    if agent.type not in UNDISTURBED:
        async with going(agent) as (place, upstream):
            await ended(place)
            UNDISTURBED[agent.type] = questions(agent, upstream)
        assert len(UNDISTURBED[agent.type]) == 6
    return UNDISTURBED[agent.type]


@pytest.mark.parametrize("when", [is_between, has_begun_the_second], ids=["between", "during"])
@pytest.mark.parametrize("agent", [CODEX, pytest.param(PI, marks=pytest.mark.harness)], ids=lambda agent: agent.type)
async def test_the_sessions_owner_is_killed(agent: Program, when: Callable[[Envelope], bool]) -> None:
    """Who takes it over goes on with the same input: nothing is launched or asked for twice."""
    plain = await undisturbed(agent)
    async with going(agent) as (place, upstream):
        await seen(place, when)
        await killed(place, "h0")
        counts, events = await ended(place)
        assert (counts[LaunchRequested], counts[LaunchEnded], counts[LaunchLost]) == (2, 2, 0)
        check_the_end(counts, events, launches=[(1, 1), (2, 1)])
        assert questions(agent, upstream) == plain
        assert left_of(events) == []


@pytest.mark.parametrize(
    ("agent", "when", "hosts"),
    [
        pytest.param(CODEX, is_between, ("h1",), id="codex-between"),
        pytest.param(CODEX, has_begun_the_second, ("h1",), id="codex-during"),
        pytest.param(CODEX, has_begun_the_second, tuple(HOSTS), id="codex-during-all"),
        pytest.param(PI, is_between, ("h1",), id="pi-between", marks=pytest.mark.harness),
        pytest.param(PI, has_begun_the_second, ("h1",), id="pi-during", marks=pytest.mark.harness),
    ],
)
async def test_the_host_of_the_sandbox_is_killed(
    agent: Program, when: Callable[[Envelope], bool], hosts: tuple[str, ...]
) -> None:
    """The next machine begins with the workspace and the program's own files as the first input left them: one attempt."""
    plain = await undisturbed(agent)
    async with going(agent) as (place, upstream):
        await seen(place, when)
        await killed(place, *hosts)
        counts, events = await ended(place)
        assert counts[SandboxLost] == 1
        launches = [(e.data.activation, e.data.number) for e in events if isinstance(e.data, LaunchRequested)]
        assert set(launches) >= {(1, 1), (2, 2)}
        assert set(launches) <= {(1, 1), (2, 1), (2, 2)}
        check_the_end(counts, events, launches=launches)
        if when is has_begun_the_second:
            assert counts[ModelCallRecalled] == 1
        assert questions(agent, upstream) == plain
        (wanted,) = [e.data for e in events if isinstance(e.data, SandboxRequested) and e.data.number == 2]
        assert wanted.restore
        assert wanted.restore_home
        assert left_of(events) == []


def check_the_end(counts: Any, events: list[Envelope], launches: list[tuple[int, int]]) -> None:
    """Check that both inputs were dealt with once, in one attempt, and that each recorded answer was asked for once."""
    assert [(e.data.activation, e.data.number) for e in events if isinstance(e.data, LaunchRequested)] == launches
    assert [e.attempt for e in events if isinstance(e.data, RolloutFinished)] == [1]
    assert [e.data.activation for e in events if isinstance(e.data, ActivationCompleted)] == [1, 2]
    assert counts[ActivationStarted] == 1
    assert counts[ModelCallCompleted] == 6
    (closed,) = [e.data for e in events if isinstance(e.data, SessionClosed)]
    assert [(done.activation, done.turns) for done in closed.activations] == [(1, 3), (2, 3)]
