"""What is left at a maker of machines when a run is over is cleared away: of this host's machines, and of no other run's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.ended_runs import KEPT, TRIES, EndedRuns, is_run_over
from actors.services import Services
from gym_bus.errors import BusUnavailable
from gym_bus.event_log import Draft, EventLog
from gym_bus.memory_bus import MemoryBus
from gym_bus.redaction import Redactor
from gym_bus.secrets_store import SecretsStore
from gym_bus.settings import Settings
from gym_bus.subjects import run_aggregate
from providers.sandboxes.remote.ownership import HOST, LABEL
from schemas.events import RunFinished
from schemas.sandboxes import E2B, Bubblewrap, OpenSandbox, RemoteSandbox
from tests.support.sandbox_doubles.e2b import e2b_double
from tests.support.sandbox_doubles.faults import KEY, Fault
from tests.support.sandbox_doubles.opensandbox import opensandbox_double
from tests.support.virtual_time import run_virtual
from tests.support.world import World

LIST = {"e2b": "GET /v2/sandboxes", "opensandbox": "GET /v1/sandboxes"}


@pytest.fixture(params=["e2b", "opensandbox"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[RemoteSandbox, Any]]:
    """Give a configuration whose maker is a double, and the double."""
    key = SecretsStore(tmp_path / "data" / "secrets").store(KEY)
    if request.param == "e2b":
        with e2b_double(tmp_path / "machines") as (url, double):
            yield E2B(api_url=url, sandbox_url=url, api_key=key), double
    else:
        with opensandbox_double(tmp_path / "machines") as (domain, other):
            yield OpenSandbox(image="any:1", domain=domain, api_key=key), other


@pytest.fixture
async def services(place: tuple[RemoteSandbox, Any], tmp_path: Path) -> AsyncIterator[Services]:
    """Give what a host has; it is closed before the maker is gone."""
    made = life(tmp_path)
    yield made
    await made.aclose()


def life(tmp_path: Path) -> Services:
    """Return what a life of the host has."""
    data = tmp_path / "data"
    return Services(Settings(data_dir=data), "h0", SecretsStore(data / "secrets"), Redactor())


def labels(double: Any) -> list[str]:
    """Return what machines there are."""
    return sorted(one.metadata[LABEL] for one in double.kept.values())


class Over:
    """Runs that are over, as the log says."""

    def __init__(self, *runs: str) -> None:
        self.runs = set(runs)
        self.is_away = False

    async def __call__(self, run_id: str) -> bool:
        """Look it up."""
        if self.is_away:
            msg = "away"
            raise BusUnavailable(msg)
        return run_id in self.runs


async def made(services: Services, sandbox: RemoteSandbox, *names: str) -> None:
    """Make machines as the sandbox actor does."""
    for label in names:
        services.ended_runs.add(label.partition(".")[0], sandbox)
        await services.provider_for(sandbox).create(label)


async def test_what_is_left_of_a_run_that_is_over_is_removed(
    services: Services, place: tuple[RemoteSandbox, Any], tmp_path: Path
) -> None:
    """Once; other runs keep theirs, and so do other hosts that have a run of the same name."""
    sandbox, double = place
    await made(services, sandbox, "one.0-0.b1", "one.warm.h0.b1.1", "one.1-0.b1", "two.0-0.b1")
    next(one for one in double.kept.values() if one.metadata[LABEL] == "one.1-0.b1").metadata[HOST] = "another"
    assert await services.ended_runs.clear(Over()) == 0
    assert len(double.kept) == 4
    assert await services.ended_runs.clear(Over("one")) == 2
    assert labels(double) == ["one.1-0.b1", "two.0-0.b1"]
    file = tmp_path / "data/hosts/h0/remote_runs.jsonl"
    assert [line.count('"run_id":"two"') for line in file.read_text().splitlines()] == [1]
    assert KEY not in file.read_text()
    seen = len(double.faults.seen)
    assert await services.ended_runs.clear(Over("one")) == 0
    assert len(double.faults.seen) == seen, "nobody is asked any more"
    again = await services.provider_for(sandbox).create("one.0-0.b1")
    assert (await again.exec("echo new", key="k", timeout_s=10)).output == "new\n"


async def test_the_next_life_of_the_host_knows(
    services: Services, place: tuple[RemoteSandbox, Any], tmp_path: Path
) -> None:
    """The run ended while there was no host."""
    sandbox, double = place
    await made(services, sandbox, "one.0-0.b1")
    later = life(tmp_path)
    try:
        assert await later.ended_runs.clear(Over("one")) == 1
    finally:
        await later.aclose()
    assert labels(double) == []


async def test_what_cannot_be_removed_is_tried_again(
    services: Services, place: tuple[RemoteSandbox, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the maker or the bus is away nothing is forgotten."""
    sandbox, double = place
    await made(services, sandbox, "one.0-0.b1")
    over = Over("one")
    over.is_away = True
    assert await services.ended_runs.clear(over) == 0
    over.is_away = False
    double.faults.planned.append(Fault(LIST[sandbox.model_dump()["type"]], status=500, times=20))
    assert await services.ended_runs.clear(over) == 0
    assert double.kept
    double.faults.planned.clear()
    assert await services.ended_runs.clear(over) == 1
    assert not double.kept


class NeverWorks:
    """A provider that can do nothing."""

    name = "never"
    asked = 0

    async def remove_run(self, run: str) -> int:
        """Fail."""
        del run
        self.asked += 1
        msg = "no way"
        raise OSError(msg)

    capabilities: frozenset[Any] = frozenset()
    check = create = reap = aclose = remove_run


async def test_it_is_not_tried_for_ever(tmp_path: Path) -> None:
    """A key that is gone, a maker that is no more: machines end unrenewed."""
    provider = NeverWorks()
    runs = EndedRuns(tmp_path / "runs.jsonl", lambda _: provider)  # type: ignore[arg-type,return-value]
    runs.add("one", E2B())
    for _ in range(TRIES + 10):
        assert await runs.clear(Over("one")) == 0
    assert provider.asked == TRIES
    assert (tmp_path / "runs.jsonl").read_text() == ""


def test_only_so_many_are_remembered_and_none_of_this_hosts_own(tmp_path: Path) -> None:
    """The newest; a file that was broken is read as far as it says anything."""
    path = tmp_path / "runs.jsonl"

    def runs() -> EndedRuns:
        return EndedRuns(path, lambda _: NeverWorks())  # type: ignore[arg-type,return-value]

    runs().add("one", Bubblewrap())
    assert not path.exists()
    many = runs()
    for n in range(KEPT + 5):
        many.add(f"r{n}", E2B())
    lines = path.read_text().splitlines()
    assert len(lines) == KEPT
    assert '"r5"' in lines[0]
    path.write_text("\n".join(["{broken", *lines[-2:]]))
    runs().add("last", E2B())
    assert [line.count("run_id") for line in path.read_text().splitlines()] == [1, 1, 1]


def test_the_log_says_when_a_run_is_over() -> None:
    """By its own last event, whatever else is there."""

    async def scenario() -> None:
        world = World()
        bus = MemoryBus(world.server, "sandbox")
        log = EventLog(MemoryBus(world.server, "collector"), world.codec, world.clock, worker="c.0", patience_s=60)
        assert not await is_run_over(bus, "r1")
        finished = RunFinished(request_id="q", state="cancelled", planned=0, scored=0, failed=0, masked=0, missing=0)
        await log.append_alone(run_aggregate("r1"), 1, Draft(finished, None))
        assert await is_run_over(bus, "r1")
        assert not await is_run_over(bus, "r")
        assert not await is_run_over(bus, "r10")

    run_virtual(scenario())
