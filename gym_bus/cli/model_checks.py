"""Whether a model behind HTTP can be called, asked before anything is started: every address, the key, the model's name."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gym_bus.endpoint_file import BadEndpointFile, read_addresses
from gym_bus.errors import BadConfig
from schemas.config import AzureModel, SwitchyardModel, VllmModel
from schemas.model_urls import calls_url, key_headers, models_url

if TYPE_CHECKING:
    import httpx

    from schemas.config import HttpModel

ENDPOINT_TIMEOUT_S: Final = 5.0
ENDPOINT_MAX_BYTES: Final = 1024 * 1024
FILE_PATIENCE_S: Final = 5.0
POLL_S: Final = 0.1
ADDRESSES_ASKED_MAX: Final = 32
NAMES_SHOWN: Final = 8
SHOWN: Final = 200
MAY_START: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.TOO_MANY_REQUESTS})
NO_DEPLOYMENT: Final = "DeploymentNotFound"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a model cannot be called at one of its addresses; `is_absence` if nobody is there, which may be for a moment only."""

    text: str
    is_absence: bool = False


def check_endpoint(model: HttpModel, api_key: str | None) -> None:
    """Raise `BadConfig` if nothing answers at an address, it refuses the key, is no API of this kind, or has no such model.

    A missing list (404), a busy or failing backend (429, 5xx) are no reason not to start: calls are tried again. Of addresses
    in a file one must be alive: they come and go.
    """
    addresses = _addresses(model)[:ADDRESSES_ASKED_MAX]
    with ThreadPoolExecutor(len(addresses)) as pool:
        found = [trouble for trouble in pool.map(lambda a: trouble_at(model, a, api_key), addresses) if trouble]
    if model.endpoint_file and len(found) < len(addresses):
        found = [trouble for trouble in found if not trouble.is_absence]
    if found:
        text = "\n".join(trouble.text for trouble in found)
        raise BadConfig(text.replace(api_key, "[redacted]") if api_key else text)


def _addresses(model: HttpModel) -> tuple[str, ...]:
    """Return where the model is; a file that is not there yet is waited for, a few seconds."""
    if model.endpoint_file is None:
        return model.addresses
    deadline = time.monotonic() + FILE_PATIENCE_S
    while True:
        try:
            return read_addresses(Path(model.endpoint_file))
        except BadEndpointFile as error:
            if model.addresses:
                return model.addresses
            if time.monotonic() > deadline:
                msg = f"model.{error}"
                raise BadConfig(msg) from error
        time.sleep(POLL_S)


def trouble_at(model: HttpModel, address: str, api_key: str | None) -> Trouble | None:
    """Return why the model cannot be called at `address`, None if it can, or if nobody can tell."""
    import httpx  # noqa: PLC0415  only for real models

    url, name = models_url(model, address), f"model {model.policy_model_name}"
    try:
        response = _asked("GET", url, key_headers(model, api_key))
        problem = problem_of(response) or _missing(model, address, api_key, response)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeEncodeError) as error:
        return Trouble(f"model.policy_base_url: {address!r} cannot be used: {error}")
    except httpx.TimeoutException:
        return Trouble(f"{name}: no answer from {url} within {ENDPOINT_TIMEOUT_S:.0f} s", is_absence=True)
    except httpx.HTTPError as error:
        where = "endpoint_file" if model.endpoint_file else "--model-url"
        text = f"{name}: {url} cannot be reached ({error}): is the server running, and {where} right?"
        return Trouble(text, is_absence=True)
    return Trouble(f"{name}: {url} {problem}") if problem else None


def _asked(method: str, url: str, headers: Mapping[str, str], body: Any = None) -> httpx.Response:
    """Return an answer with its body, at most 1 MiB of it, within 5 s in all; raises `httpx.HTTPError`."""
    import httpx  # noqa: PLC0415  only for real models

    deadline, pieces, size = time.monotonic() + ENDPOINT_TIMEOUT_S, [], 0
    sent = None if body is None else {"json": body}
    with httpx.stream(method, url, headers=dict(headers), timeout=ENDPOINT_TIMEOUT_S, **(sent or {})) as response:
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
    if not isinstance(_parsed(response), dict | list):
        return f"is no API of a model; it answered {_shown(response.text)}. Does --model-url lack /v1?"
    return None


def _missing(model: HttpModel, address: str, api_key: str | None, listed: httpx.Response) -> str | None:
    """Return that there is no such model, if the server can tell: some list all that they have, some must be asked for one."""
    name = model.policy_model_name
    if isinstance(model, AzureModel):
        return _missing_deployment(model, address, api_key)
    names = _names(listed)
    if not names or any(fnmatchcase(name, known) for known in names):
        return None
    shown = ", ".join(names[:NAMES_SHOWN]) + (
        f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    )
    kind = "route" if isinstance(model, SwitchyardModel) else "model"
    text = f"has no {kind} {name!r}: check --model (model.policy_model_name); there are {shown}"
    if isinstance(model, VllmModel | SwitchyardModel):
        return text
    one = _asked("GET", f"{models_url(model, address)}/{quote(name, safe='/')}", key_headers(model, api_key))
    return text if one.status_code == HTTPStatus.NOT_FOUND and name in one.text else None


def _missing_deployment(model: AzureModel, address: str, api_key: str | None) -> str | None:
    """Ask a deployment for nothing, which costs nothing: it refuses the question, or there is none to refuse it."""
    url = calls_url(model, address)
    answer = _asked("POST", url, key_headers(model, api_key), {"model": model.policy_model_name})
    if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return problem_of(answer)
    if answer.status_code != HTTPStatus.NOT_FOUND:
        return None
    if NO_DEPLOYMENT in answer.text:
        return f"has no deployment {model.policy_model_name!r}: --model must be a deployment's name, not its model's"
    return f"knows no {url}: check --model-url and model.api_version ({model.api_version or 'not set'}); it said {_shown(answer.text)}"


def _names(response: httpx.Response) -> list[str]:
    """Return the ids of a list of models; none if it is no list that we know."""
    found = _parsed(response) if response.is_success else None
    data = found.get("data") if isinstance(found, dict) else None
    entries = data if isinstance(data, list) else []
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _parsed(response: httpx.Response) -> Any:
    try:
        return json.loads(response.text)
    except (ValueError, RecursionError):
        return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
