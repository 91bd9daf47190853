"""`gym-bus eval samples`: training rows out of the log, one rollout at a time, with every generated token accounted for."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli import questions
from gym_bus.cli.lazy import FAILED, OK
from gym_bus.cli.setup import settings_for
from gym_bus.cli.tables import as_words, print_table
from gym_bus.client import connect_cli, open_log
from gym_bus.codec import Undecodable
from gym_bus.errors import Permanent
from gym_bus.subjects import rollout_pattern, shard_of, token
from projections.samples import by_attempt, rebuild
from projections.samples.sample import TrainingRow
from projections.samples.totals import Totals
from schemas.config import LocalModel, ReplayModel, RunConfig, VllmModel

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.settings import Settings
    from projections.samples.files import RowsFile
    from schemas.config import ModelConfig
    from schemas.envelope import Envelope

PAGE: Final = 2_000
LINE_EVERY_S: Final = 5.0
VIOLATIONS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Standing:
    """How a rollout stands: its state, what that counts as, its reward, and its latest attempt (0: not begun)."""

    rollout_id: str
    state: str
    counted_as: str
    reward: float | None
    attempts: int


def show_samples(run_id: str, rollout_id: str | None, out: Path | None, *, as_json: bool, data_dir: Path | None) -> int:
    """Do `gym-bus eval samples`; return 1 if the checker found anything."""
    settings = settings_for(data_dir)
    token(run_id)
    if rollout_id is not None:
        token(rollout_id)
    state, model, totals = asyncio.run(_collect(settings, run_id, rollout_id, _file(out)))
    why_none = _why_none(model) if not totals.rows and "no_token_ids" in totals.excluded else None
    if as_json:
        written = str(out.resolve()) if out else None
        facts = {"run_id": run_id, "run_state": state, "out": written, **totals.summary()}
        print(json.dumps({**facts, **({"no_rows_because": why_none} if why_none else {})}))
    else:
        _print(run_id, state, totals, out, why_none)
    for violation in totals.violations[:VIOLATIONS_SHOWN]:
        print(f"violation: {violation}", file=sys.stderr)
    if len(totals.violations) > VIOLATIONS_SHOWN:
        print(f"and {len(totals.violations) - VIOLATIONS_SHOWN:,} more: --json lists all", file=sys.stderr)
    return FAILED if totals.violations else OK


def _file(out: Path | None) -> RowsFile | None:
    if out is None:
        return None
    from projections.samples.files import RowsFile  # noqa: PLC0415  only then

    return RowsFile(out)


async def _collect(
    settings: Settings, run_id: str, rollout_id: str | None, file: RowsFile | None
) -> tuple[str, ModelConfig, Totals]:
    """Go through the rollouts in the order of the plan; at any time one of them is in memory."""
    [run] = await questions.ask(settings, (questions.SHARDS, [run_id]))
    if not run.answer.rows:
        msg = f"there is no run {run_id!r}: `gym-bus eval status` lists them"
        raise Permanent(msg)
    [[state, shards, config]] = run.answer.rows
    totals, progress = Totals(), _Progress()
    async with connect_cli(settings) as bus:
        log = open_log(bus, settings)
        with file or nullcontext():
            async for standing in _standings(settings, run_id, rollout_id):
                await _rollout(log, run_id, int(shards), standing, totals, file)
                progress.show(totals)
    if rollout_id is not None and not totals.rollouts:
        msg = f"run {run_id} has no rollout {rollout_id!r}: `gym-bus sql` lists them in the view rollouts"
        raise Permanent(msg)
    return str(state), RunConfig.model_validate_json(config).model, totals


async def _standings(settings: Settings, run_id: str, rollout_id: str | None) -> AsyncGenerator[Standing]:
    """Yield how each rollout stands, page by page."""
    after: list[Any] = [-2, -1, ""]
    while True:
        parameters = [run_id, rollout_id, rollout_id, *after, PAGE]
        [told] = await questions.ask(settings, (questions.ROLLOUTS, parameters), max_rows=PAGE)
        for row in told.answer.rows:
            yield Standing(*row[:5])
            after = [*row[5:7], row[0]]
        if len(told.answer.rows) < PAGE and not told.answer.truncated:
            return


async def _rollout(
    log: EventLog, run_id: str, shards: int, standing: Standing, totals: Totals, file: RowsFile | None
) -> None:
    """Rebuild one rollout, count it, and write its rows: those of its latest attempt."""
    events = await _events(log, run_id, shards, standing.rollout_id, totals) if standing.attempts else []
    has_rows = False
    for attempt, own in by_attempt(events).items():
        if attempt > standing.attempts:  # begun after the projection was asked
            continue
        rebuilt = rebuild(own)
        totals.attempt(rebuilt, is_last=attempt == standing.attempts)
        if attempt == standing.attempts:
            has_rows = bool(rebuilt.samples)
            for sample in rebuilt.samples:
                if file:
                    file.write(TrainingRow.of(sample, standing.state, standing.counted_as, standing.reward))
    totals.rollout(standing.counted_as, is_begun=bool(standing.attempts), has_rows=has_rows)


async def _events(log: EventLog, run_id: str, shards: int, rollout_id: str, totals: Totals) -> list[Envelope]:
    """Return what the log holds of a rollout's model calls and sessions; what cannot be read is a violation."""
    prefix = rollout_pattern(shard_of(rollout_id, shards), run_id, rollout_id).removesuffix(">")
    events: list[Envelope] = []
    for pattern in (f"{prefix}collector.*.cmd.harness.*", f"{prefix}model.>"):
        async for stored in log.bus.read(pattern):
            try:
                events.append(log.decode(stored))
            except Undecodable as error:
                totals.violations.append(f"rollout {rollout_id}: event {stored.sequence} cannot be read: {error}")
    return events


class _Progress:
    """A line on standard error every few seconds, for what takes long."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def show(self, totals: Totals) -> None:
        """Say how far it is if nothing was said for a while."""
        if time.monotonic() - self._said > LINE_EVERY_S:
            self._said = time.monotonic()
            print(
                f"{as_words(totals.rollouts, 'rollout')}, {as_words(totals.rows, 'row')}", file=sys.stderr, flush=True
            )


def _why_none(model: ModelConfig) -> str:
    """Return why no answer of a run has token ids."""
    if isinstance(model, VllmModel) and not model.return_token_id_information:
        return "model.return_token_id_information=false: the backend was not asked for token ids"
    if isinstance(model, VllmModel | LocalModel):
        return f"model.type={model.type} asks for token ids, and none were given (docs/samples.md)"
    if isinstance(model, ReplayModel):
        return "the recording has no token ids: the run that was recorded did not ask for them (docs/samples.md)"
    return f"model.type={model.type} does not ask for token ids: use --model-type vllm, or model.type=local (docs/samples.md)"


def _print(run_id: str, state: str, totals: Totals, out: Path | None, why_none: str | None) -> None:
    """Print the sums for a person."""
    counted = totals.counted
    print(f"run {run_id}: {state}")
    print(
        f"rollouts: {totals.rollouts:,} planned = {totals.with_rows:,} with rows + {totals.without_rows:,} without + "
        f"{totals.not_begun:,} not begun"
    )
    print(
        f"          {totals.rollouts:,} planned = {counted['scored']:,} scored + {counted['failed']:,} failed + "
        f"{counted['masked']:,} masked + {counted['missing']:,} missing"
    )
    relations = ", ".join(f"{count:,} {name}" for name, count in sorted(totals.relations.items()))
    print(
        f"rows: {totals.rows:,}{f' ({relations})' if relations else ''}; {totals.rejected:,} rejected without a trainable token"
    )
    print(f"tokens: {totals.trained:,} trained, {totals.context:,} context ({totals.prompt:,} of them first prompts)")
    if totals.excluded:
        print()
        rows = [[name, one.calls, one.tokens, one.unknown] for name, one in sorted(totals.excluded.items())]
        print_table(("excluded because", "calls", "tokens", "calls of unknown length"), rows)
    if totals.gaps:
        print()
        print_table(("gap", "rows"), [list(pair) for pair in sorted(totals.gaps.items())])
    if why_none:
        print(f"\nno rows: {why_none}")
    if out:
        print(f"\n{as_words(totals.rows, 'row')} written to {out}")
