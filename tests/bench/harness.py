# ruff: noqa: ASYNC240  what is measured here may block
"""How long an agent's own program takes to its first call of the model: through us, and started bare in the same kind of sandbox.

Through us is from the session's wish for a launch to the model's server; bare is the same command line, its files written beforehand,
run as one command of a box, with the same gateway between it and the same server.
"""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from adapters.harnesses.base import Plan
from adapters.harnesses.running import put_text
from adapters.harnesses.table import HARNESSES
from schemas.config import JsonlTaskset, OpenAIModel, RunConfig
from schemas.conversation import Reply, Text
from schemas.events import LaunchRequested
from schemas.harnesses import CodexAgent, PiAgent
from tests.bench.stage import ACTORS, stage
from tests.e2e.test_agent_programs import model_at
from tests.support.harness_place import ROOT, HarnessPlace, harness_place

RUNS: Final = 3
ROUNDS: Final = 4
"""Both are measured in turn, so often: how fast the machine is changes from minute to minute."""
AGENTS: Final = {"codex": CodexAgent(), "pi": PiAgent()}
ENDED_WITHIN_S: Final = 60.0


@dataclass
class Arrivals:
    """A model that says one word, and when it was asked for it."""

    dialect: Any
    at: list[float] = field(default_factory=list)

    def __call__(self, body: dict[str, Any]) -> Reply:
        """Note the time, by the clock that events have, and answer."""
        assert body
        self.at.append(time.time())
        return Reply(dialect=self.dialect, id="r", model="scripted", parts=(Text(text="Done."),), stop_reason="stop")


async def measure(*, quick: bool) -> dict[str, float]:
    """Return both times for each agent, and their ratio; the first of each round warms up and does not count."""
    figures: dict[str, float] = {}
    for name, agent in AGENTS.items():
        through_us: list[float] = []
        alone: list[float] = []
        for _ in range(1 if quick else ROUNDS):
            through_us += await _ours_ms(agent, 1 + RUNS)
            alone += await _bare_ms(agent.type, 1 + RUNS)
        ours, bare = median(through_us), median(alone)
        figures |= {
            f"harness_start_ratio_{name}": ours / bare,
            f"harness_start_ms_{name}": ours,
            f"harness_bare_start_ms_{name}": bare,
        }
    figures["harness_start_ratio"] = max(figures[f"harness_start_ratio_{name}"] for name in AGENTS)
    return figures


async def _ours_ms(agent: CodexAgent | PiAgent, runs: int) -> list[float]:
    dialect = HARNESSES[agent.type].dialect
    model = Arrivals(dialect)
    async with (
        model_at(dialect, model) as (url, _),
        stage(hosts=0, projector=False, extra={"GYM_BUS_PROGRAMS_DIR": str(ROOT / ".gym-bus")}) as place,
    ):
        for host_id, kinds in {"h0": ACTORS, "g0": "gateway"}.items():
            place.spawn(host_id, kinds)
        await place.ready()
        tasks = place.data_dir / "tasks.jsonl"
        tasks.write_text("".join(json.dumps({"question": f"Say {n}.", "answer": "1"}) + "\n" for n in range(runs)))
        await place.request(
            RunConfig(
                taskset=JsonlTaskset(jsonl_fpath=str(tasks)),
                agent=agent,
                model=OpenAIModel(
                    api="responses" if dialect == "responses" else "chat",
                    policy_base_url=f"{url}/v1",
                    policy_model_name="some-model",
                ),
                num_samples_in_parallel=1,
            )
        )
        await place.finished(ENDED_WITHIN_S * runs)
        asked = [
            e.recorded_at.timestamp()
            async for e in place.log.read("gym.evt.0.>")
            if isinstance(e.data, LaunchRequested)
        ]
    assert len(asked) == len(model.at) == runs, (len(asked), len(model.at))
    return [(there - begun) * 1e3 for begun, there in list(zip(asked, model.at, strict=True))[1:]]


async def _bare_ms(name: str, runs: int) -> list[float]:
    harness = HARNESSES[name]
    model = Arrivals(harness.dialect)
    begun: list[float] = []
    with tempfile.TemporaryDirectory(prefix="gym-bus-bench-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        async with harness_place(harness, Path(directory), model) as at:
            for number in range(runs):
                cleared = await at.box.exec("rm -rf /tmp/*", key=f"cleared{number}", timeout_s=ENDED_WITHIN_S)
                assert cleared.exit_code == 0, "like a box that is new: Pi keeps what it has compiled in there"
                command = await _command(at, at.plan(home=f"/tmp/agent{number}"), number)
                begun.append(time.time())
                done = await at.box.exec(command, key=f"bare{number}", timeout_s=ENDED_WITHIN_S)
                assert done.exit_code == 0, done.output
    return [(there - start) * 1e3 for start, there in list(zip(begun, model.at, strict=True))[1:]]


async def _command(at: HarnessPlace, plan: Plan, number: int) -> str:
    """Return the shell's words for a plan whose files are there."""
    box: Any = at.box
    for path, content in plan.files.items():
        await put_text(box, content, path)
    source = "/dev/null"
    if plan.stdin is not None:
        source = f"/tmp/stdin{number}"
        await put_text(box, plan.stdin, source)
    environment = " ".join(f"{key}={shlex.quote(value)}" for key, value in plan.environment.items())
    return f"env -i {environment} {shlex.join(plan.argv)} <{source}"
