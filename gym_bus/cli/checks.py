"""What is checked before anything is started: a mistake costs seconds and leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gym_bus.errors import BadConfig

if TYPE_CHECKING:
    import httpx

    from gym_bus.settings import Settings
    from schemas.config import AnthropicModel, OpenAIModel, RunConfig

ENDPOINT_TIMEOUT_S: Final = 5.0
ENDPOINT_MAX_BYTES: Final = 1024 * 1024
RESULT_FILES: Final = ("rollouts.jsonl", "failures.jsonl", "metrics.json", "manifest.json", "run.json")
MARK: Final = "run.json"
SHOWN: Final = 200
MAY_START: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.TOO_MANY_REQUESTS})


def check_config(config: RunConfig, api_key: str | None, settings: Settings) -> None:
    """Raise `BadConfig` or `BadTaskset` if the run could not work: no tasks, no sandbox, no model."""
    if config.shards > 1 and not settings.bus_url:
        msg = "shards: the embedded bus has one; set GYM_BUS_BUS_URL to use a server with more"
        raise BadConfig(msg)
    if config.taskset.type == "reasoning_gym" and not config.taskset.datasets:
        msg = "taskset.datasets: no tasks in it; name at least one dataset"
        raise BadConfig(msg)
    if config.taskset.type == "jsonl":
        from adapters.benchmarks import load_tasks  # noqa: PLC0415  only then

        load_tasks(config.taskset)
    if config.sandbox.type == "bubblewrap" and config.agent.enable_tools and shutil.which("bwrap") is None:
        msg = (
            "sandbox: bubblewrap is not installed (no `bwrap` on PATH): `apt-get install bubblewrap`, "
            "or agent.enable_tools=false, or --unsafe-local for tasks you trust"
        )
        raise BadConfig(msg)
    if config.model.type != "scripted":
        check_endpoint(config.model, api_key)


def check_endpoint(model: OpenAIModel | AnthropicModel, api_key: str | None) -> None:
    """Raise `BadConfig` if nothing answers at the model's URL, it refuses the key, or it is no API of this kind.

    A missing list (404), a busy or failing backend (429, 5xx) are no reason not to start: calls are tried again.
    """
    import httpx  # noqa: PLC0415  only for real models

    url, headers = _list_of_models(model, api_key)
    try:
        response = _fetched(url, headers)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeEncodeError) as error:
        msg = f"model.policy_base_url: {model.policy_base_url!r} cannot be used: {error}"
        raise BadConfig(msg) from error
    except httpx.TimeoutException as error:
        msg = f"model {model.policy_model_name}: no answer from {url} within {ENDPOINT_TIMEOUT_S:.0f} s"
        raise BadConfig(msg) from error
    except httpx.HTTPError as error:
        msg = (
            f"model {model.policy_model_name}: {url} cannot be reached ({error}): is the server running, "
            f"and --model-url right?"
        )
        raise BadConfig(msg) from error
    if problem := problem_of(response):
        text = f"model {model.policy_model_name}: {url} {problem}"
        raise BadConfig(text.replace(api_key, "[redacted]") if api_key else text)


def _fetched(url: str, headers: dict[str, str]) -> httpx.Response:
    """Return an answer with its body, at most 1 MiB of it, within 5 s in all; raises `httpx.HTTPError`."""
    import httpx  # noqa: PLC0415  only for real models

    deadline, pieces, size = time.monotonic() + ENDPOINT_TIMEOUT_S, [], 0
    with httpx.stream("GET", url, headers=headers, timeout=ENDPOINT_TIMEOUT_S) as response:
        for piece in response.iter_bytes():
            pieces.append(piece)
            size += len(piece)
            if time.monotonic() > deadline:
                msg = "the answer does not come to an end"
                raise httpx.ReadTimeout(msg)
            if size > ENDPOINT_MAX_BYTES:
                msg = f"the list of models has more than {ENDPOINT_MAX_BYTES:,} bytes"
                raise httpx.DecodingError(msg)
    kept = {name: value for name, value in response.headers.items() if name == "location"}
    return httpx.Response(response.status_code, headers=kept, content=b"".join(pieces))


def _list_of_models(model: OpenAIModel | AnthropicModel, api_key: str | None) -> tuple[str, dict[str, str]]:
    """Return where a backend lists its models, and the headers that it wants."""
    base = model.policy_base_url.rstrip("/")
    if model.type == "anthropic":
        key = {"x-api-key": api_key} if api_key else {}
        return f"{base.removesuffix('/v1')}/v1/models", {"anthropic-version": "2023-06-01", **key}
    return f"{base}/models", {"Authorization": f"Bearer {api_key}"} if api_key else {}


def problem_of(response: httpx.Response) -> str | None:
    """Return what is wrong with the answer to a question for the list of models, None if a run may start."""
    status = response.status_code
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return f"refused the key ({status}): check --model-api-key, or the key in the environment; it said {_shown(response.text)}"
    if response.is_redirect:
        return f"redirects to {_shown(response.headers.get('location', ''))}: give that address as --model-url"
    if status in MAY_START or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    if not response.is_success:
        return f"answered {status}: {_shown(response.text)}"
    try:
        found = json.loads(response.text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict | list):
        return f"is no API of a model; it answered {_shown(response.text)}. Does --model-url lack /v1?"
    return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def run_in(output: Path) -> dict[str, Any] | None:
    """Return what run an output directory belongs to ({"run_id": …}), None if it has none of our files."""
    for name in (MARK, "manifest.json"):
        try:
            found = json.loads((output / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and isinstance(found.get("run_id"), str):
            return found
    return {"run_id": None} if any((output / name).exists() for name in RESULT_FILES) else None


def check_room(output: Path, *, overwrite: bool) -> str | None:
    """Return the run whose results are in the way, None if there are none; raises `BadConfig` if they may not be moved."""
    found = run_in(output)
    if found is None:
        return None
    if not overwrite:
        owner = f"of run {found['run_id']}" if found["run_id"] else "of some run"
        msg = (
            f"{output} has the results {owner}: --overwrite moves them aside, "
            f"--resume --output {output} goes on with that run, --output names another directory"
        )
        raise BadConfig(msg)
    return str(found["run_id"]) if found["run_id"] else None


def make_room(output: Path, *, overwrite: bool) -> Path | None:
    """Return where old results were moved, None if there were none; raises `BadConfig` if they may not be moved."""
    check_room(output, overwrite=overwrite)
    if run_in(output) is None:
        return None
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    aside = output.with_name(f"{output.name}.{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = output.with_name(f"{output.name}.{stamp}-{number}")
    output.rename(aside)
    return aside


def mark_output(output: Path, run_id: str, data_dir: Path) -> None:
    """Take the output directory: write whose it is, so that `--resume` finds the run. Raises `BadConfig` if another run took it."""
    text = json.dumps({"run_id": run_id, "data_dir": str(data_dir)}) + "\n"
    temporary = output / f".{MARK}.{os.getpid()}"
    try:
        output.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        try:
            os.link(temporary, output / MARK)  # of two at once one succeeds
        finally:
            temporary.unlink()
    except FileExistsError as error:
        owner = (run_in(output) or {}).get("run_id")
        if owner == run_id:
            return
        msg = f"{output} has just been taken by run {owner}: --output names another directory"
        raise BadConfig(msg) from error
    except OSError as error:
        msg = f"--output: {output} cannot be written to: {error.strerror or error}"
        raise BadConfig(msg) from error
