"""An agent that somebody runs somewhere else: what it can be given, what it is asked over HTTP, and what its answers mean.

docs/harnesses.md has the contract for whoever writes such an agent.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from adapters.harnesses.base import Unsupported
from adapters.harnesses.outcomes import UNCLEAN
from adapters.harnesses.readers import text_of
from providers.models.failures import retry_after_s
from schemas.events import LaunchSettled, RemoteAnswered, RemoteAsked
from schemas.harnesses import RemoteAgent
from schemas.readiness import Install
from schemas.sandboxes import Bubblewrap, Checkpoints, SandboxConfig
from schemas.tasks import Evidence, TaskInput
from schemas.values import Failure, FailureKind, Message

SAID_MAX: Final = 600
STATUS_URL_MAX: Final = 2048
BUSY: Final = frozenset({408, 425, 429})
"""Refusals that say nothing of what was asked: it may be asked again."""
GONE: Final = frozenset({404, 410})
UNHEARD: Final = "the agent came to an end, and its model was never heard by way of base_url"
INSTEAD: Final = "use an agent that runs in a sandbox: a program of its own such as codex_agent, or acp_agent"


# -- what it can be given ------------------------------------------------------------------------------------------------------


def check(
    agent: RemoteAgent,
    task: TaskInput,
    sandbox: SandboxConfig,
    install: Install | None,
    checkpoints: Checkpoints,
    warm_sandboxes: int,
) -> None:
    """Raise `Unsupported` for what an agent outside of all sandboxes cannot do, before it is asked anything."""
    if task.hands_in != "answer":
        what = "files of the workspace" if task.hands_in == "files" else "the machine as it was left"
        msg = f"{agent.type} runs outside of any sandbox, and what the task is graded by is {what}: {INSTEAD}"
        raise Unsupported(msg)
    given = {
        "sandbox": sandbox != Bubblewrap(),
        "install": install is not None,
        "checkpoints": checkpoints != Checkpoints(),
        "warm_sandboxes": warm_sandboxes > 0,
    }
    if wanted := [name for name, is_given in given.items() if is_given]:
        msg = f"{agent.type} runs outside of any sandbox, and {', '.join(wanted)} say what one is like: leave that out, or {INSTEAD}"
        raise Unsupported(msg)
    if task.continues and not agent.resumes:
        msg = (
            f"the task has further inputs: set agent.resumes=true if the agent at {agent.url} goes on with its session"
        )
        raise Unsupported(msg)
    if task.continues and task.continues.observations:
        told = ", ".join(task.continues.observations)
        msg = f"the task asks for {told}, and {agent.type} tells nothing but its answers: what the gateway recorded is all there is"
        raise Unsupported(msg)
    for grant in task.grants:
        if grant.required and grant.kind not in agent.grants:
            msg = f"the grant {grant.name!r} is required, and the agent has no way to use it: agent.grants must hold {grant.kind}"
            raise Unsupported(msg)


# -- what it is asked ----------------------------------------------------------------------------------------------------------


def session_id(run_id: str, rollout_id: str, attempt: int, asked_at: datetime) -> str:
    """Return what an attempt's session is called to the agent; the time tells it from one of the same name in another log."""
    return f"{run_id}.{rollout_id}.{attempt}.{int(asked_at.timestamp() * 1000):x}"


def idempotency_key(session: str, activation: int, fingerprint: str) -> str:
    """Return the name of the one thing that an activation is to the agent, in hex."""
    return hashlib.sha256(f"{session}/{activation}/{fingerprint}".encode()).hexdigest()


def is_beside_us(url: str) -> bool:
    """Say whether an address is on this machine's loopback."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def body_of(
    agent: RemoteAgent,
    asked: RemoteAsked,
    task: TaskInput,
    messages: tuple[Message, ...],
    fingerprint: str,
    deadline: datetime,
    gateway: str,
    token: str,
) -> bytes:
    """Return what is sent: the same each time, as long as the `gateway` stays where it is."""
    base_url = f"{gateway}/a/{token}"
    mcp = task.grants if task.tools and "mcp" in agent.grants else ()
    body: dict[str, Any] = {
        "session_id": asked.session_id,
        "activation": asked.activation,
        "idempotency_key": asked.idempotency_key,
        "fingerprint": fingerprint,
        "messages": [message.model_dump(mode="json", exclude_defaults=True) for message in messages],
        "timeout_s": asked.timeout_s,
        "deadline": deadline.isoformat(),
        "model": asked.model,
        "base_url": base_url,
        "token": token,
        "mcp_servers": [
            {"name": grant.name, "url": f"{base_url}/mcp/{grant.name}", "required": grant.required}
            for grant in mcp
            if grant.kind == "mcp"
        ],
        "tools_url": f"{base_url}/tools" if task.tools and "http" in agent.grants else None,
    }
    return json.dumps(body).encode()


# -- what it says --------------------------------------------------------------------------------------------------------------


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _SaidMessage(_Wire):
    role: str
    content: Any = None


class _SaidError(_Wire):
    kind: str = "error"
    message: str = ""


class _Said(_Wire):
    """An answer as it comes; what else is in it is left alone."""

    answer: str | None = None
    messages: tuple[_SaidMessage, ...] = ()
    stop_reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] = "stop"
    cleanup_confirmed: bool | None = None
    error: _SaidError | None = None


class _Taken(_Wire):
    status_url: Annotated[str, Field(max_length=STATUS_URL_MAX)] | None = None


@dataclass(frozen=True, slots=True)
class Accepted:
    """It is on its way, and how it is getting on is said at `status_url` (None: where that was asked)."""

    status_url: str | None = None
    again_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Nothing was said that counts: ask again, at most so often; then it is `failure`. `is_forgotten` if it knows of nothing there."""

    failure: Failure
    again_in_s: float | None = None
    is_forgotten: bool = False


def read(asked_id: str, url: str, status: int, headers: Mapping[str, str], body: bytes) -> Meaning:
    """Return what an answer of the agent at `url` means."""
    if status == 200:  # noqa: PLR2004  what it stands for is below
        return _ended(asked_id, url, body)
    if status == 202:  # noqa: PLR2004
        return _accepted(url, headers, body)
    said = f"the agent at {url} answered {status}: {_text(body)[:SAID_MAX] or 'nothing else'}"
    if status == 409:  # noqa: PLR2004
        return Failure(kind="agent_failed", message=f"{said} (a conflict with what it has under the same key)")
    if status in BUSY or status >= 500:  # noqa: PLR2004
        return Again(Failure(kind="agent_failed", message=said), retry_after_s(headers))
    return Failure(kind="unsupported", message=said, stage="seed", terminal=True)


def read_status(asked_id: str, url: str, status: int, headers: Mapping[str, str], body: bytes) -> Meaning:
    """Return what is said at a status URL: if it knows of nothing there, it has to be asked anew."""
    if status in GONE:
        message = f"the agent took what it was asked, and then answered {status} at {url}: it has forgotten it"
        return Again(Failure(kind="agent_failed", message=message), is_forgotten=True)
    return read(asked_id, url, status, headers, body)


def unheard(kind: FailureKind, url: str, why: object) -> Again:
    """Return what it means that there was no answer at all."""
    return Again(Failure(kind=kind, message=f"the agent at {url} gave no answer: {why}"[:SAID_MAX]))


def _ended(asked_id: str, url: str, body: bytes) -> RemoteAnswered | Failure:
    try:
        said = _Said.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        message = f"the agent at {url} answered 200, and {place} is not as it should be: {first['msg']}"
        return Failure(kind="agent_failed", message=message[:SAID_MAX])
    if not {"answer", "messages", "error"} & said.model_fields_set:
        message = f"the agent at {url} answered 200 with neither answer, messages nor error; while it works it must answer 202"
        return Failure(kind="agent_failed", message=message)
    last = next((m.content for m in reversed(said.messages) if m.role == "assistant"), None)
    # Of a list of parts those with a text count.
    words = last if isinstance(last, str) else text_of(last) or None
    answer = said.answer if "answer" in said.model_fields_set else words
    error_ = said.error
    failure = f"the agent failed ({error_.kind[:64]}): {error_.message[:SAID_MAX]}" if error_ else None
    return RemoteAnswered(
        asked_id=asked_id,
        answer=answer.replace("\0", "\ufffd") if answer is not None else None,
        stop_reason=said.stop_reason,
        cleanup_confirmed=said.cleanup_confirmed,
        failure=Failure(kind="agent_failed", message=failure.replace("\0", "\ufffd")) if failure else None,
    )


def _accepted(url: str, headers: Mapping[str, str], body: bytes) -> Accepted | Failure:
    try:
        named = _Taken.model_validate_json(body or b"{}").status_url
    except ValidationError:
        message = f"the agent at {url} answered 202, and what it says is no JSON object with a status_url: {_text(body)[:SAID_MAX]}"
        return Failure(kind="unsupported", message=message, stage="seed", terminal=True)
    if named is None:
        return Accepted(None, retry_after_s(headers))
    status_url = _joined(url, named)
    if _origin(status_url) is None or _origin(status_url) != _origin(url) or not status_url.isprintable():
        message = f"the agent at {url} answered 202 with the status_url {named!r}: it must be of the same scheme, host and port"
        return Failure(kind="unsupported", message=message[:SAID_MAX], stage="seed", terminal=True)
    return Accepted(status_url, retry_after_s(headers))


def _joined(url: str, named: str) -> str:
    """Return the whole address of one that may be relative; empty for what is none."""
    try:
        return urljoin(url, named)
    except ValueError:
        return ""


def _origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port; None for what is no plain address."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname and "@" not in parts.netloc else None


def _text(body: bytes) -> str:
    return body.decode(errors="replace").replace("\0", "\ufffd").strip()


Meaning = RemoteAnswered | Accepted | Again | Failure


# -- what it comes to ----------------------------------------------------------------------------------------------------------


def outcome(answered: RemoteAnswered, settled: LaunchSettled) -> Evidence | Failure:
    """Return what an activation is ended with. Whether the model answered is the gateway's word, and no agent's."""
    heard = settled.completed + settled.recalled
    if answered.cleanup_confirmed is False:
        return Failure(kind="agent_failed", message=UNCLEAN)
    if settled.budget == "rollout":
        return Evidence(answer=answered.answer, stop_reason=f"budget:{settled.limit}", turns=heard)
    if settled.failure or answered.failure:
        return settled.failure or answered.failure or Failure(kind="agent_failed", message=UNHEARD)
    if heard == 0:
        return Failure(kind="agent_failed", message=UNHEARD)
    return Evidence(answer=answered.answer, stop_reason=answered.stop_reason, turns=heard)
