"""Runs by the command itself against servers of other kinds: what is pinned, and servers that move while the run goes on."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.dialects.catalog import DIALECTS
from schemas.config import SwitchyardModel
from schemas.conversation import DialectName, Reply, Text, TokenUsage
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallRequested, RunRequested
from tests.support.backend import SUM, write_sums
from tests.support.checks import check_log, final_table
from tests.support.real_run import RealRun
from tests.support.served_doubles import KEY, Switchyard, Vllm
from tests.support.upstream import Upstream, served


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RealRun]:
    """A run's place, with nothing left behind afterwards."""
    place = RealRun(tmp_path)
    yield place
    place.stop()
    assert not place.pids()


def solving(double: Upstream, name: DialectName) -> None:
    """Make a double answer sums."""

    def answer(body: dict[str, Any]) -> Reply:
        found = SUM.search(json.dumps(body["messages"]))
        assert found is not None
        words = Text(text=f"<answer>{int(found[1]) + int(found[2])}</answer>")
        usage = TokenUsage(input_tokens=5, output_tokens=3)
        return Reply(dialect=name, id="r", model="m", parts=(words,), stop_reason="stop", usage=usage)

    double.answers = [answer]


def _answers(events: list[Envelope]) -> list[ModelCallCompleted]:
    return [e.data for e in events if isinstance(e.data, ModelCallCompleted)]


def started(run: RealRun, tasks: int, *arguments: str) -> tuple[str, ...]:
    """Return the arguments of a run of sums without tools."""
    path = write_sums(run.directory / "sums.jsonl", tasks)
    out = str(run.directory / "out")
    plain = ("agent.enable_tools=false", "sandbox.type=inline", "--input", str(path), "--model-api-key", KEY)
    return ("eval", "run", "--run-id", run.run_id, "--output", out, *plain, *arguments)


async def test_a_run_says_which_route_through_which_rules(run: RealRun) -> None:
    """Its first event holds the route and the digest of the proxy's file; each rollout is a session of its own to the proxy."""
    double = Switchyard(DIALECTS["messages"], models=["fleet/cheap"])
    solving(double, "messages")
    file = run.directory / "routes.toml"
    file.write_text('schema_version = 1\n[routes.a]\nid = "fleet/cheap"\ntype = "passthrough"\n')
    async with served(double.app) as url:
        kind = ("--model-type", "switchyard", "--model-url", url, "model.api=messages", f"model.deployment={file}")
        wrong = await asyncio.to_thread(run.cli, *started(run, 3, *kind, "--model", "fleet/dear"))
        assert (wrong.returncode, "no route 'fleet/dear'" in wrong.stderr) == (2, True)
        done = await asyncio.to_thread(run.cli, *started(run, 3, *kind, "--model", "fleet/cheap"))
        assert done.returncode == 0, done.stdout + done.stderr
    events = await asyncio.to_thread(run.events)
    check_log(events)
    [asked] = [e.data for e in events if isinstance(e.data, RunRequested)]
    assert isinstance(asked.config.model, SwitchyardModel)
    assert asked.config.model.policy_model_name == "fleet/cheap"
    assert asked.config.model.routing_digest == hashlib.sha256(file.read_bytes()).hexdigest()
    assert list(final_table(events).values()) == [("scored", 1.0)] * 3
    assert len(set(double.sessions)) == 3
    assert all(f".{run.run_id}." in session for session in double.sessions)
    assert KEY not in "".join(e.model_dump_json() for e in events)
    calls = [e.data for e in events if isinstance(e.data, ModelCallRequested)]
    assert {(c.backend, c.route, c.routing_digest) for c in calls} == {
        (f"{url}/v1/messages", "fleet/cheap", asked.config.model.routing_digest)
    }
    assert {(c.served_model, c.reply_id) for c in _answers(events)} == {("m", "r")}


async def test_a_server_that_moves_is_followed(run: RealRun) -> None:
    """It is gone in mid-run, and another address stands in the file some seconds later: no rollout pays for it."""
    first, second = Vllm(DIALECTS["chat"]), Vllm(DIALECTS["chat"])
    solving(first, "chat")
    solving(second, "chat")
    file = run.directory / "endpoints"
    kind = ("--model-type", "vllm", "--model", "up", f"model.endpoint_file={file}", "--concurrency", "1")
    async with served(second.app) as two:
        async with served(first.app) as one:
            file.write_text(one)
            running = asyncio.create_task(asyncio.to_thread(run.cli, *started(run, 60, *kind)))
            while len(first.bodies) < 5:
                assert not running.done(), running.result().stdout + running.result().stderr
                await asyncio.sleep(0.01)
        file.write_text(f"{two}\n")
        done = await running
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"gym-bus eval samples {run.run_id}\n" in done.stdout, "there are token ids to make rows of"
    events = await asyncio.to_thread(run.events)
    check_log(events)
    assert list(final_table(events).values()) == [("scored", 1.0)] * 60
    assert first.bodies
    assert second.bodies
    answers = [e.data for e in events if isinstance(e.data, ModelCallCompleted)]
    assert all(answer.tokens is not None for answer in answers)
