"""Watching, cancelling and resuming runs that exist."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.cli.attach import Watch
from gym_bus.cli.course import Course
from gym_bus.cli.lazy import DETACHED, FAILED, OK, PAUSED
from gym_bus.cli.plain import plain
from gym_bus.cli.progress import view_for
from gym_bus.cli.reasons import fetch_reasons
from gym_bus.cli.results import fetch_results, print_results, read_metrics
from gym_bus.cli.setup import settings_for, up_and_connected
from gym_bus.client import find_request, open_log, request_cancel, request_resume
from gym_bus.errors import BadConfig, Permanent
from schemas.config import ServedModel
from schemas.events import RunRequested
from schemas.harnesses import BehindGateway

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.nats_bus import NatsBus
    from gym_bus.settings import Settings
    from schemas.config import RunConfig
    from schemas.envelope import Envelope

ANSWER_PATIENCE_S: Final = 15.0
LOOK_EVERY_S: Final = 0.1


async def request_of(log: EventLog, run_id: str) -> tuple[Envelope, RunRequested]:
    """Return the request that began a run; raises `Permanent` if there is no such run."""
    envelope = await find_request(log, run_id)
    if envelope is None or not isinstance(envelope.data, RunRequested):
        msg = f"there is no run {run_id!r}: `gym-bus eval status` lists them"
        raise Permanent(msg)
    return envelope, envelope.data


async def watch(settings: Settings, bus: NatsBus, log: EventLog, run_id: str, *, as_json: bool) -> int:
    """Watch a run to its end and show its results; return the exit code."""
    view = view_for(as_json=as_json)
    watching = Watch(settings, bus, log, run_id, view)
    try:
        code, course = await watching.run()
    finally:
        view.close()
    if course.finished:
        await show_end(bus, course, code, as_json=as_json)
    elif course.parked:
        reason = course.parked.failure.message
        _end_line(as_json, run_id, "parked", code, reason=reason)
        view.say(
            f"parked: nobody could go on with the run: {plain(reason)}\n"
            f"when that is mended:   gym-bus dlq list, gym-bus dlq redrive SEQ, gym-bus eval attach {run_id}"
        )
    elif code == PAUSED:
        reason = course.paused.reason if course.paused else ""
        _end_line(as_json, run_id, "paused", code, reason=reason)
        view.say(paused_words(run_id, reason))
    elif code == DETACHED:
        _end_line(as_json, run_id, "detached", code)
        view.say(f"detached; the run goes on.   gym-bus eval attach {run_id}")
    return code


def paused_words(run_id: str, reason: str) -> str:
    """Return why a run is paused, and what can be done about it."""
    return (
        f"paused: {plain(reason)}\nwhen that is mended:   gym-bus eval resume {run_id}\n"
        f"or cancel it and start another one, for a resumed run keeps its configuration:   gym-bus eval cancel {run_id}"
    )


async def show_end(bus: NatsBus, course: Course, code: int, *, as_json: bool) -> None:
    """Show how a run ended, with its metrics and the paths of its results."""
    paths, why_not = await fetch_results(bus, course)
    reasons = await fetch_reasons(bus, course)
    if as_json and course.finished:
        metrics = read_metrics(paths)
        ended = course.finished.model_dump(mode="json", exclude={"request_id", "state"})
        _end_line(True, course.run_id, course.state, code, **ended, **reasons.facts(), results=paths, metrics=metrics)
    else:
        print_results(course, paths, why_not, reasons)


def _end_line(as_json: bool, run_id: str, state: str, code: int, **facts: Any) -> None:
    if as_json:
        print(json.dumps({"type": "end", "run_id": run_id, **facts, "state": state, "exit_code": code}), flush=True)


def attach_run(run_id: str, *, as_json: bool, data_dir: Path | None) -> int:
    """Do `gym-bus eval attach`."""
    settings = settings_for(data_dir)

    async def body() -> int:
        async with up_and_connected(settings) as bus:
            log = open_log(bus, settings)
            await request_of(log, run_id)
            return await watch(settings, bus, log, run_id, as_json=as_json)

    return asyncio.run(body())


def cancel_run(run_id: str, reason: str, *, as_json: bool, data_dir: Path | None) -> int:
    """Do `gym-bus eval cancel`: ask, and wait a while until the collector has taken it in."""
    settings = settings_for(data_dir)

    def said(state: str, text: str) -> None:
        print(json.dumps({"run_id": run_id, "state": state}) if as_json else text)

    async def body() -> int:
        async with up_and_connected(settings) as bus:
            log = open_log(bus, settings)
            await request_of(log, run_id)
            course = Course(run_id)
            await course.refresh(log)
            if course.finished:
                said(course.finished.state, f"run {run_id} is {course.finished.state} already")
                return OK
            await request_cancel(log, run_id, reason)
            for _ in range(int(ANSWER_PATIENCE_S / LOOK_EVERY_S)):
                await course.refresh(log)
                if course.cancelled or course.finished:
                    winds_up = "what is under way winds up"
                    said(course.state, f"run {run_id} is being cancelled: {winds_up}.   gym-bus eval attach {run_id}")
                    return OK
                await asyncio.sleep(LOOK_EVERY_S)
            said(course.state, f"asked to cancel run {run_id}; nobody has answered yet, see `gym-bus bus status`")
            return FAILED

    return asyncio.run(body())


def resume_run(run_id: str, options: Mapping[str, Any]) -> int:
    """Do `gym-bus eval resume`."""
    settings = settings_for(options["data_dir"])
    as_json = bool(options["as_json"])

    async def body() -> int:
        async with up_and_connected(settings) as bus:
            log = open_log(bus, settings)
            _, request = await request_of(log, run_id)
            _check_same(request.config, options)
            if isinstance(request.config.agent, BehindGateway):
                from gym_bus.cli.gateway_up import gateway_up  # noqa: PLC0415  only for them

                await gateway_up(settings)
            _replace_keys(settings, request.config, options)
            course = Course(run_id)
            await course.refresh(log)
            if course.finished:
                if course.finished.state == "cancelled" and not as_json:
                    print(f"run {run_id} was cancelled, which is final: a new `gym-bus eval run` starts over")
                code = Watch.verdict(course.finished)
                await show_end(bus, course, code, as_json=as_json)
                return code
            if course.paused:
                await _end_pause(log, course, request.config_digest)
            if options["detach"]:
                from gym_bus.cli.eval_run import detached  # noqa: PLC0415  only then

                print(
                    f"run {run_id} goes on.   gym-bus eval attach {run_id}", file=sys.stderr if as_json else sys.stdout
                )
                return detached(run_id, request.output_dir, as_json=as_json)
            return await watch(settings, bus, log, run_id, as_json=as_json)

    return asyncio.run(body())


def _check_same(logged: RunConfig, options: Mapping[str, Any]) -> None:
    """Raise `BadConfig` with the differences if a configuration was given that is not the logged one."""
    from gym_bus import config as configs  # noqa: PLC0415  only then
    from gym_bus.cli.eval_run import resolve  # noqa: PLC0415  the same
    from gym_bus.cli.flags import flags_of  # noqa: PLC0415  the same
    from gym_bus.config_agent import with_agent_key_name_of  # noqa: PLC0415  only then
    from gym_bus.config_sandboxes import with_key_names_of  # noqa: PLC0415  the same
    from gym_bus.config_text import Sourced  # noqa: PLC0415  the same

    flags = flags_of(options)
    if not (options.get("configs") or options.get("overrides") or flags):
        return
    if not (options.get("configs") or "taskset" in flags):  # single keys: laid over what is logged
        base = Sourced(logged.model_dump(mode="json", exclude_defaults=True))
        configs.merge(base, configs.parse_overrides(options.get("overrides") or ()))
        configs.merge(base, Sourced(flags, {(): "command line"}))
        given = configs.validate(base)
    else:
        given, _ = resolve({**options, "model_api_key": None, "sandbox_api_key": None}, os.environ)
    if isinstance(logged.model, ServedModel) and given.model.type == logged.model.type:
        key = logged.model.policy_api_key  # a key may change: it is no part of what is measured
        given = given.model_copy(update={"model": given.model.model_copy(update={"policy_api_key": key})})
    given = with_agent_key_name_of(with_key_names_of(given, logged), logged)
    if lines := configs.difference(logged, given):
        shown = "\n".join(f"  {line}" for line in lines)
        msg = (
            f"the run was started with another configuration (logged -> given):\n{shown}\n"
            f"start a new run for it: gym-bus eval run"
        )
        raise BadConfig(msg)


def _replace_keys(settings: Settings, config: RunConfig, options: Mapping[str, Any]) -> None:
    """Put new API keys in the old ones' places, under the names that the log holds."""
    from gym_bus.config_sandboxes import key_of, replace_keys  # noqa: PLC0415  only then
    from gym_bus.secrets_store import SecretsStore  # noqa: PLC0415  the same

    store = SecretsStore(settings.data_dir / "secrets")
    given = key_of("--model-api-key", options.get("model_api_key"), os.environ)
    makers = key_of("--sandbox-api-key", options.get("sandbox_api_key"), os.environ)
    if makers is not None:
        replace_keys(config, makers, store)
    if given is None:
        return
    if not isinstance(config.model, ServedModel) or config.model.policy_api_key is None:
        msg = "--model-api-key: this run was started without a key; start a new run: gym-bus eval run"
        raise BadConfig(msg)
    store.replace(config.model.policy_api_key, given)


async def _end_pause(log: EventLog, course: Course, digest: str) -> None:
    """Ask a paused run to go on, and wait until it does: a watch begun earlier would see the pause and leave.

    It may pause again at once, for the same reason or another; that it went on meanwhile is what counts.
    """
    before = course.resumed_sequence
    await request_resume(log, course.run_id, digest)
    for _ in range(int(ANSWER_PATIENCE_S / LOOK_EVERY_S)):
        await course.refresh(log)
        if course.paused is None or course.resumed_sequence > before:
            return
        await asyncio.sleep(LOOK_EVERY_S)
    msg = (
        f"run {course.run_id} stays paused: no collector has answered; see `gym-bus bus status` and `gym-bus dlq list`"
    )
    raise Permanent(msg)
