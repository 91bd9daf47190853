"""Starting a run: configuration, checks, everything brought up, the request, and then watching."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gym_bus import config as configs
from gym_bus.cli import checks
from gym_bus.cli.entry import check_folders
from gym_bus.cli.lazy import OK
from gym_bus.cli.setup import settings_for, up_and_connected, version
from gym_bus.config_agent import take_agent_key, with_agent_key_name
from gym_bus.config_errors import models_in
from gym_bus.config_sandboxes import take_keys, with_key_names
from gym_bus.engine_socket import pin_socket
from gym_bus.errors import BadConfig
from gym_bus.routing_digest import pin_routes
from gym_bus.secrets_store import SecretsStore
from schemas.config import AgentConfig, ServedModel
from schemas.harnesses import BehindGateway, NopAgent, OracleAgent

UNNAMED: Final = "warning: no model was named: a scripted stand-in answers, and scores mean nothing; --model and --model-url name one"

if TYPE_CHECKING:
    from gym_bus.event_log import EventLog
    from gym_bus.settings import Settings
    from schemas.config import RunConfig


def flags_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the flags say, in the configuration's own shape."""
    flags: dict[str, Any] = {}
    if options.get("reasoning_gym"):
        flags["taskset"] = {"type": "reasoning_gym", "datasets": [{"name": name} for name in options["reasoning_gym"]]}
    if options.get("input_path"):
        if "taskset" in flags:
            msg = "--input and --reasoning-gym both name the tasks: give one of them"
            raise BadConfig(msg)
        flags["taskset"] = {"type": "jsonl", "jsonl_fpath": options["input_path"]}
    if options.get("folder"):
        if "taskset" in flags:
            msg = f"the folder {options['folder']} names the tasks, and so does a flag: give one of them"
            raise BadConfig(msg)
        flags["taskset"] = {"type": "harbor", "path": options["folder"]}
    if options.get("agent"):
        flags["agent"] = {"type": agent_named(options["agent"])}
    if options.get("unsafe_local"):
        flags["sandbox"] = {"type": "unsafe_local"}
    type_ = _model_type(options)
    named = {"policy_base_url": _model_url(options.get("model_url")), "policy_model_name": options.get("model")}
    if (model := {key: value for key, value in named.items() if value is not None}) or options.get("model_type"):
        flags["model"] = {"type": type_ or "openai", **model}
    plain = {
        "num_repeats": "num_repeats",
        "concurrency": "num_samples_in_parallel",
        "limit": "limit",
    }
    flags.update({key: options[flag] for flag, key in plain.items() if options.get(flag) is not None})
    sampled = {name: options.get(name) for name in ("temperature", "top_p", "max_output_tokens")}
    if sampling := {key: value for key, value in sampled.items() if value is not None}:
        flags["responses_create_params"] = sampling
    return flags


def with_folder(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the folder of tasks, which stands among the overrides, by itself; raises `BadConfig` for two of them."""
    words = list(options.get("overrides") or ())
    folders = [word for word in words if not configs.OVERRIDE.fullmatch(word) and Path(word).expanduser().is_dir()]
    if strange := next((word for word in words if "=" not in word and word not in folders), None):
        msg = f"{strange!r} is no override (key=value, such as num_repeats=1), and there is no folder of that name"
        raise BadConfig(msg)
    if len(folders) > 1:
        msg = f"{folders[0]} and {folders[1]} are both folders of tasks: give one, or the folder that both are in"
        raise BadConfig(msg)
    rest = tuple(word for word in words if word not in folders)
    return {**options, "folder": folders[0] if folders else None, "overrides": rest}


def agent_named(name: str) -> str:
    """Return the type of the agent that is called `name`, with or without `_agent`; raises `BadConfig` with those that there are."""
    types = [kind.model_fields["type"].default for kind in models_in(AgentConfig)]
    found = [type_ for type_ in types if name in {type_, type_.removesuffix("_agent")}]
    if not found:
        holding = [type_ for type_ in types if name.replace("-", "_") in type_]
        known = {short: type_ for type_ in types for short in (type_, type_.removesuffix("_agent"))}
        near = get_close_matches(name.replace("-", "_"), known, n=1)
        meant = f"; did you mean {known[near[0]]}?" if near and not holding else ""
        msg = f"--agent: no agent is called {name!r}; there are {', '.join(sorted(holding or types))}{meant}"
        raise BadConfig(msg)
    return str(found[0])


def _model_type(options: Mapping[str, Any]) -> str | None:
    """Return what kind of server was asked for, by a flag or by an override, which must not contradict each other."""
    flag: str | None = options.get("model_type")
    model = configs.parse_overrides(options.get("overrides") or ()).values.get("model")
    written = model.get("type") if isinstance(model, dict) else None
    if flag is not None and written not in (None, flag):
        msg = f"--model-type {flag} and model.type={written} say two things: give one of them"
        raise BadConfig(msg)
    return flag or (written if isinstance(written, str) else None)


def _model_url(given: str | Sequence[str] | None) -> str | list[str] | None:
    """Return the address that was given, or the list of them if `--model-url` was given several times."""
    urls = [given] if isinstance(given, str) else list(given or ())
    for url in urls:
        if re.search(r",\s*https?://", url):
            msg = f"--model-url: {url!r} is more than one address: give the option once for each of them"
            raise BadConfig(msg)
    return urls if len(urls) > 1 else urls[0] if urls else None


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
    previous = checks.check_room(output, overwrite=options["overwrite"])
    config = with_keys(config, api_key, settings, others)
    return asyncio.run(_request_and_watch(settings, config, run_id, output, options, previous))


def is_stand_in_unasked(config: RunConfig) -> bool:
    """Say whether the scripted stand-in is asked only because nobody named a model."""
    return "model" not in config.model_fields_set and not isinstance(config.agent, OracleAgent | NopAgent)


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
            msg = (
                f"run {run_id} exists: `gym-bus eval attach {run_id}` watches it, "
                f"`gym-bus eval resume {run_id}` goes on with it, another --run-id starts a new one"
            )
            raise BadConfig(msg)
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
