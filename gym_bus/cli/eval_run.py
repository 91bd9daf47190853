"""Starting a run: configuration, checks, everything brought up, the request, and then watching."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gym_bus import config as configs
from gym_bus.cli import checks
from gym_bus.cli.entry import check_folders
from gym_bus.cli.flags import flags_of, with_folder
from gym_bus.cli.lazy import OK
from gym_bus.cli.setup import settings_for, up_and_connected, version
from gym_bus.config_agent import take_agent_key, with_agent_key_name
from gym_bus.config_sandboxes import take_keys, with_key_names
from gym_bus.engine_socket import pin_socket
from gym_bus.errors import BadConfig
from gym_bus.routing_digest import pin_routes
from gym_bus.secrets_store import SecretsStore
from schemas.config import ServedModel
from schemas.harnesses import BehindGateway

UNNAMED: Final = "warning: no model was named: a scripted stand-in answers, and scores mean nothing; --model and --model-url name one"

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.settings import Settings
    from schemas.config import RunConfig


def resolve(options: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[RunConfig, str | None]:
    """Return the configuration without its key, and the model's API key; raises `BadConfig`."""
    flags = flags_of(options)
    sourced = configs.gather(options.get("configs") or (), options.get("overrides") or (), flags)
    if "model" in flags and not _is_named(sourced.values["model"]):
        msg = "--model and --model-url go together: the first names the model, the second says where it is"
        raise BadConfig(msg)
    model = sourced.values.get("model")
    is_served = isinstance(model, dict) and model.get("type") in configs.KEY_VARIABLES
    given = options.get("model_api_key")
    if given is not None and not is_served:
        msg = "--model-api-key needs a model: --model-url and --model, or model.type=openai in a configuration"
        raise BadConfig(msg)
    api_key = configs.key_of_model(sourced, given, environ, is_default_wanted=is_served)
    take_keys(sourced, environ, options.get("sandbox_api_key"))  # out of the values; see `other_keys`
    take_agent_key(sourced, environ)
    pin_socket(sourced, environ)
    configs.make_paths_absolute(sourced, Path.cwd())
    pin_routes(sourced)
    return configs.validate(sourced), api_key


def _is_named(model: Mapping[str, Any]) -> bool:
    """Say whether a model has a name, and a place: an address, a file of addresses, or its maker's own."""
    has_place = "policy_base_url" in model or "endpoint_file" in model or model.get("type") == "anthropic"
    return "policy_model_name" in model and has_place


def other_keys(options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the API keys of sandboxes' makers and of the agent, by the place that names them; raises `BadConfig`."""
    sourced = configs.gather(options.get("configs") or (), options.get("overrides") or (), flags_of(options))
    return {**take_keys(sourced, environ, options.get("sandbox_api_key")), **take_agent_key(sourced, environ)}


def with_keys(
    config: RunConfig, api_key: str | None, settings: Settings, others: Mapping[str, str] = MappingProxyType({})
) -> RunConfig:
    """Return the configuration with the names of the stored keys, the model's and `others` by place: all that the log gets."""
    keys = SecretsStore(settings.data_dir / "secrets")
    if api_key is not None and isinstance(config.model, ServedModel):
        model = config.model.model_copy(update={"policy_api_key": keys.store(api_key)})
        config = config.model_copy(update={"model": model})
    return with_agent_key_name(with_key_names(config, others, keys), others, keys)


def name_for(options: Mapping[str, Any], config: RunConfig) -> str:
    """Return a name for the run that says what it is and has not been used: stem, date, time, two random digits."""
    files = options.get("configs") or ()
    if files:
        stem = Path(files[-1]).stem
    elif config.taskset.type == "jsonl":
        stem = Path(config.taskset.jsonl_fpath).stem
    elif config.taskset.type == "harbor":
        stem = Path(config.taskset.path).name
    else:
        stem = config.taskset.datasets[0].name if config.taskset.datasets else "run"
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", stem).strip("-")[:32] or "run"
    return f"{stem}-{datetime.now(UTC):%m%d-%H%M%S}-{secrets.token_hex(1)}"


def start_run(options: dict[str, Any]) -> int:
    """Do `gym-bus eval run`; return the exit code."""
    from gym_bus.subjects import token  # noqa: PLC0415  checks a name that was given

    check_folders()
    options = with_folder(options)
    settings = settings_for(options["data_dir"])
    run_id, output = options["run_id"], options["output"]
    if options["resume"]:
        if run_id is None and output is None:
            msg = "--resume needs to know which run: --run-id NAME, or --output DIR"
            raise BadConfig(msg)
        run_id = run_id or (checks.run_in(output) or {}).get("run_id")
        if run_id and _is_known(settings, run_id):
            from gym_bus.cli.eval_runs import resume_run  # noqa: PLC0415  only then

            return resume_run(run_id, options)
    config, api_key = resolve(options, os.environ)
    run_id = name_for(options, config) if run_id is None else run_id
    try:
        token(run_id)
        if run_id.startswith("-"):
            msg = f"{run_id!r} begins with '-', as options do"
            raise BadConfig(msg)  # noqa: TRY301  told like the rest
    except Exception as error:
        msg = f"--run-id: {error}"
        raise BadConfig(msg) from error
    output = (output or Path("results") / run_id).absolute()
    _say(f"model: {config.model_label}", as_json=options["as_json"])
    others = other_keys(options, os.environ)
    checks.check_config(config, api_key, settings, sandbox_keys=others)
    previous = _look_at_results(settings, run_id, output, options)
    config = with_keys(config, api_key, settings, others)
    return asyncio.run(_request_and_watch(settings, config, run_id, output, options, previous))


def _look_at_results(settings: Settings, run_id: str, output: Path, options: Mapping[str, Any]) -> str | None:
    """Return the run whose results are in the way, None if there are none; raises `BadConfig` if they may not be moved.

    Of results of the very run that is asked for again it is said that it exists: neither moving them nor another place helps.
    """
    has_log = bool(settings.bus_url) or (settings.data_dir / "bus").is_dir()
    if has_log and (checks.run_in(output) or {}).get("run_id") == run_id and _is_known(settings, run_id):
        raise _exists(run_id, output if options["output"] else None)
    return checks.check_room(output, overwrite=options["overwrite"])


def _exists(run_id: str, results: Path | None = None) -> BadConfig:
    """Return the error for a run that there is already; `results` is where its results lie if a new one would have them there too."""
    new = f", with another --output than {results} or with --overwrite," if results else ""
    return BadConfig(
        f"run {run_id} exists: `gym-bus eval attach {run_id}` watches it, `gym-bus eval resume {run_id}` goes on with it, or "
        f"writes its results again; another --run-id{new} starts a new one"
    )


def is_stand_in_unasked(config: RunConfig) -> bool:
    """Say whether the scripted stand-in is asked only because nobody named a model."""
    return config.asks_a_model and "model" not in config.model_fields_set


def _is_known(settings: Settings, run_id: str) -> bool:
    """Say whether a run of that name was ever asked for."""
    from gym_bus.client import find_request, open_log  # noqa: PLC0415  slow to import

    async def look() -> bool:
        async with up_and_connected(settings) as bus:
            return await find_request(open_log(bus, settings), run_id) is not None

    return asyncio.run(look())


def detached(run_id: str, output_dir: str, *, as_json: bool) -> int:
    """Leave a run to itself: for a program one object, with where its results will be."""
    if as_json:
        print(json.dumps({"type": "detached", "run_id": run_id, "output_dir": output_dir}), flush=True)
    return OK


def _say(text: str, *, as_json: bool) -> None:
    print(text, file=sys.stderr if as_json else sys.stdout, flush=True)


async def _refuse_open(log: EventLog, previous: str, output: Path) -> None:
    """Raise `BadConfig` if the run whose results lie in `output` is still going on and would write there."""
    from gym_bus.cli.course import Course  # noqa: PLC0415  only then
    from gym_bus.client import find_request  # noqa: PLC0415  the same

    course = Course(previous)
    await course.refresh(log)
    if await find_request(log, previous) is not None and not course.finished:
        msg = (
            f"{output} belongs to run {previous}, which is not over and will write there: "
            f"`gym-bus eval cancel {previous}` ends it, --output names another directory"
        )
        raise BadConfig(msg)


async def _with_gateway(settings: Settings) -> None:
    """Have the model gateway up, which agents' own programs talk to."""
    from gym_bus.cli.gateway_up import gateway_up  # noqa: PLC0415  only for them

    await gateway_up(settings)


async def _request_and_watch(
    settings: Settings,
    config: RunConfig,
    run_id: str,
    output: Path,
    options: Mapping[str, Any],
    previous: str | None,
) -> int:
    as_json = bool(options["as_json"])
    async with up_and_connected(settings, config.taskset.type) as bus:
        from gym_bus.client import find_request, open_log, request_run  # noqa: PLC0415  processes start meanwhile
        from schemas.events import RunRequested  # noqa: PLC0415  the same

        log = open_log(bus, settings)
        if isinstance(config.agent, BehindGateway):
            await _with_gateway(settings)
        if await find_request(log, run_id) is not None:
            raise _exists(run_id)
        if previous is not None:
            await _refuse_open(log, previous, output)
        if aside := checks.make_room(output, overwrite=bool(options["overwrite"])):
            _say(f"old results: moved to {aside}", as_json=as_json)
        checks.mark_output(output, run_id, settings.data_dir)
        checks.write_config(output, config)
        versions = {"gym_bus": version(), "python": platform.python_version()}
        stored = await request_run(
            log,
            run_id=run_id,
            config=config,
            digest=configs.config_digest(config),
            output_dir=str(output),
            versions=versions,
        )
        if isinstance(stored.data, RunRequested) and stored.data.output_dir != str(output):
            msg = f"run {run_id} was started a moment ago with its results in {stored.data.output_dir}: choose another --run-id"
            raise BadConfig(msg)
        _say(f"run: {run_id}, results go to {output}", as_json=as_json)
        if is_stand_in_unasked(config):
            print(UNNAMED, file=sys.stderr, flush=True)
        if options["detach"]:
            _say(f"watch it: gym-bus eval attach {run_id}\nend it:   gym-bus eval cancel {run_id}", as_json=as_json)
            return detached(run_id, str(output), as_json=as_json)
        from gym_bus.cli.eval_runs import watch  # noqa: PLC0415  the run is on its way already

        return await watch(settings, bus, log, run_id, as_json=as_json)
