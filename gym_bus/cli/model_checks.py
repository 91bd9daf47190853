"""Whether a model behind HTTP can be called, asked before anything is started: every address, the key, the model's name."""

from __future__ import annotations

import json
import re
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
from schemas.config import AzureModel, OpenAIModel, SwitchyardModel, VllmModel
from schemas.model_urls import PATHS, calls_url, key_headers, models_url

if TYPE_CHECKING:
    import httpx

    from schemas.config import HttpModel

ENDPOINT_TIMEOUT_S: Final = 5.0
ENDPOINT_MAX_BYTES: Final = 1024 * 1024
FILE_PATIENCE_S: Final = 5.0
POLL_S: Final = 0.1
ADDRESSES_ASKED_MAX: Final = 32
NAMES_SHOWN: Final = 5
SHOWN: Final = 200
MAY_START: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.TOO_MANY_REQUESTS})
REFUSED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
NOT_THERE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
UNFIT: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
NO_DEPLOYMENT: Final = "DeploymentNotFound"
NOBODY: Final = "gym-bus-asks-for-no-such-model"
"""A name that no server has: one that answers to it as to a model's name does not tell names apart."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a model cannot be called at one of its addresses; `is_absence` if nobody is there, which may be for a moment only."""

    text: str
    is_absence: bool = False


def check_endpoint(model: HttpModel, api_key: str | None) -> None:
    """Raise `BadConfig` if nothing answers at an address, it refuses the key, is no API of this kind, or has no such model.

    Where the list of models says nothing, and where an API is not the one that everybody has, the path of the calls is asked
    for an answer to no question, which costs nothing. A busy or failing backend (429, 5xx) is no reason not to start: calls are
    tried again. Of addresses in a file one must be alive: they come and go.
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
        if problem := problem_of(response):
            return Trouble(f"{name}: {url} {problem}")
        problem = _unfit(model, address, api_key, response)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeEncodeError) as error:
        return Trouble(f"model.policy_base_url: {address!r} cannot be used: {error}")
    except httpx.TimeoutException:
        return Trouble(f"{name}: no answer from {url} within {ENDPOINT_TIMEOUT_S:.0f} s", is_absence=True)
    except httpx.HTTPError as error:
        where = "endpoint_file" if model.endpoint_file else "--model-url"
        text = f"{name}: {url} cannot be reached ({error}): is the server running, and {where} right?"
        return Trouble(text, is_absence=True)
    return Trouble(f"{name}: {problem}") if problem else None


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
    if status in REFUSED:
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


def _unfit(model: HttpModel, address: str, api_key: str | None, listed: httpx.Response) -> str | None:
    """Return what is wrong with name or path, with the place that says so; None if nothing is, or if nobody can tell."""
    if isinstance(model, AzureModel):  # lists what could be deployed, not what is
        return _missing_deployment(model, address, api_key)
    names = _names(listed)
    if names and not any(fnmatchcase(model.policy_model_name, known) for known in names):
        is_whole = isinstance(model, VllmModel | SwitchyardModel)
        if is_whole or not _is_vouched_for(model, address, api_key):
            return _no_such_name(model, address, names)
    if names is not None and model.dialect == "chat":  # who lists models has the API that everybody has
        return None
    asked = _asked_for_nothing(model, address, api_key, model.policy_model_name)
    return _problem_of_path(model, address, asked) if asked is not None else None


def _no_such_name(model: HttpModel, address: str, names: list[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    kind = "route" if isinstance(model, SwitchyardModel) else "model"
    return (
        f"{models_url(model, address)} has no {kind} {model.policy_model_name!r}: check --model (model.policy_model_name); "
        f"there are {', '.join(names[:NAMES_SHOWN])}{more}"
    )


def _asked_for_nothing(model: HttpModel, address: str, api_key: str | None, name: str) -> httpx.Response | None:
    """Return what the path of the calls says to a call without a question, None if it does not come to an answer."""
    import httpx  # noqa: PLC0415  only for real models

    try:
        return _asked("POST", calls_url(model, address), key_headers(model, api_key), {"model": name})
    except httpx.HTTPError:
        return None  # something was there a moment ago: it may be no more than clumsy with such a call


def _problem_of_path(model: HttpModel, address: str, answer: httpx.Response) -> str | None:
    """Return what is wrong by the answer to a call without a question: the key, the name, or that nothing takes such calls."""
    url, name = calls_url(model, address), model.policy_model_name
    if answer.status_code in REFUSED:
        return f"{url} {problem_of(answer)}"
    if answer.status_code not in NOT_THERE:
        return None
    if "model" in answer.text.lower() and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", answer.text):
        return f"{url} has no model {name!r}: check --model (model.policy_model_name); it said {_shown(answer.text)}"
    return f"nothing of this kind is at {url} ({answer.status_code}): {_advice(model, address)}"


def _advice(model: HttpModel, address: str) -> str:
    """Return what may be wrong with an address at which calls find nothing."""
    for path in PATHS.values():
        if address.rstrip("/").endswith(path):
            return f"leave {path} off --model-url, it is added"
    other = f"is it another API than {model.type}'s {model.dialect!r} (--model-type, model.api)?"
    return other if not isinstance(model, OpenAIModel) or "/v1" in address else f"is `/v1` missing, or {other}"


def _is_vouched_for(model: HttpModel, address: str, api_key: str | None) -> bool:
    """Say whether a server takes a name that it does not list: it knows the model itself, or tells the name from one that is none."""
    headers, name = key_headers(model, api_key), model.policy_model_name
    one = _asked("GET", f"{models_url(model, address)}/{quote(name, safe='/')}", headers)
    if one.is_success and isinstance(_parsed(one), dict):
        return True
    asked = _asked_for_nothing(model, address, api_key, name)
    if asked is None or asked.status_code not in UNFIT:
        return False
    other = _asked_for_nothing(model, address, api_key, NOBODY)
    return other is not None and _said(other, NOBODY) != _said(asked, name)


def _said(response: httpx.Response, name: str) -> tuple[int, str]:
    """Return status and message of a refusal without the name that it was about."""
    found = _parsed(response)
    error = found.get("error", found) if isinstance(found, dict) else found
    message = error.get("message", error) if isinstance(error, dict) else error
    return response.status_code, str(message or response.text).replace(name, "")


def _missing_deployment(model: AzureModel, address: str, api_key: str | None) -> str | None:
    """Ask a deployment for nothing, which costs nothing: it refuses the question, or there is none to refuse it."""
    url = calls_url(model, address)
    answer = _asked("POST", url, key_headers(model, api_key), {"model": model.policy_model_name})
    if answer.status_code in REFUSED:
        return f"{url} {problem_of(answer)}"
    if answer.status_code != HTTPStatus.NOT_FOUND:
        return None
    if NO_DEPLOYMENT in answer.text:
        where = models_url(model, address)
        return f"{where} has no deployment {model.policy_model_name!r}: --model must be a deployment's name, not its model's"
    version = f"model.api_version ({model.api_version or 'not set'})"
    said = (
        f"check --model-url and {version}, or is it no server of Azure's (--model-type)? It said {_shown(answer.text)}"
    )
    return f"nothing of this kind is at {url} (404): {said}"


def _names(response: httpx.Response) -> list[str] | None:
    """Return the ids of a list of models; None if it is no list that we know."""
    found = _parsed(response) if response.is_success else None
    entries = found.get("data") if isinstance(found, dict) else found
    if not isinstance(entries, list):
        return None
    return [entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _parsed(response: httpx.Response) -> Any:
    try:
        return json.loads(response.text)
    except (ValueError, RecursionError):
        return None


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
