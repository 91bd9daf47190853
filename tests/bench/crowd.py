"""Many agents' own programs at once in one host: none may be lost, and what they take of the machine's memory is told.

The model takes so long over its answers that all of them are under way before the first one ends.
"""

from __future__ import annotations

import json
from typing import Any, Final

from adapters.harnesses.table import HARNESSES
from schemas.config import JsonlTaskset, OpenAIModel, RunConfig
from schemas.conversation import Reply, Text
from schemas.events import LaunchEnded, LaunchFailed, LaunchLost, LaunchRequested, RolloutFinished
from schemas.harnesses import CodexAgent, PiAgent
from tests.bench.processes import memory_mb, most_at_once
from tests.bench.stage import ACTORS, stage
from tests.e2e.test_agent_programs import model_at
from tests.support.harness_place import ROOT

COUNT: Final = 64
QUICK_COUNT: Final = 8
PACE_S: Final = 6.0
QUICK_PACE_S: Final = 1.0
WITHIN_S: Final = 170.0


async def measure_codex(*, quick: bool) -> dict[str, float]:
    """Return the figures of Codex."""
    return await _measure("codex", CodexAgent(), quick=quick)


async def measure_pi(*, quick: bool) -> dict[str, float]:
    """Return the figures of Pi."""
    return await _measure("pi", PiAgent(), quick=quick)


async def _measure(name: str, agent: CodexAgent | PiAgent, *, quick: bool) -> dict[str, float]:
    """Return how many programs ran at once, how many rollouts have no reward, and the most memory of everything, in MB."""
    count = QUICK_COUNT if quick else COUNT
    dialect = HARNESSES[agent.type].dialect
    peak_mb = 0.0

    def done(body: dict[str, Any]) -> Reply:
        assert body
        return Reply(dialect=dialect, id="r", model="scripted", parts=(Text(text="1"),), stop_reason="stop")

    async with (
        model_at(dialect, done, pace_s=QUICK_PACE_S if quick else PACE_S) as (url, _),
        stage(hosts=0, projector=False, extra={"GYM_BUS_PROGRAMS_DIR": str(ROOT / ".gym-bus")}) as on,
    ):
        for host_id, kinds in {"h0": ACTORS, "g0": "gateway"}.items():
            on.spawn(host_id, kinds)
        await on.ready()
        tasks = on.data_dir / "tasks.jsonl"
        tasks.write_text("".join(json.dumps({"question": f"Say 1 ({n}).", "answer": "1"}) + "\n" for n in range(count)))

        def look() -> None:
            nonlocal peak_mb
            peak_mb = max(peak_mb, memory_mb(on.pids()))

        await on.request(
            RunConfig(
                taskset=JsonlTaskset(jsonl_fpath=str(tasks)),
                agent=agent,
                model=OpenAIModel(
                    api="responses" if dialect == "responses" else "chat",
                    policy_base_url=f"{url}/v1",
                    policy_model_name="some-model",
                ),
                num_samples_in_parallel=count,
                ramp_per_s=100_000,
            )
        )
        await on.finished(WITHIN_S, look=look)
        changes: list[tuple[float, int]] = []
        scored = 0
        async for event in on.log.read("gym.evt.0.>"):
            match event.data:
                case LaunchRequested():
                    changes.append((event.recorded_at.timestamp(), 1))
                case LaunchEnded() | LaunchFailed() | LaunchLost():
                    changes.append((event.recorded_at.timestamp(), -1))
                case RolloutFinished(state="scored", reward=1.0):
                    scored += 1
    return {
        f"crowd_{name}_at_once": most_at_once(changes),
        f"crowd_{name}_lost": count - scored,
        f"crowd_{name}_mb": peak_mb,
    }
