"""What the harness does outside for an agent that somebody runs somewhere else: asks it, looks at how it is, tells it to stop."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from actors.gateway.grants import Grant, gateway_key, mint
from actors.harness.core import unsupported
from actors.harness.remote import FollowAgent, RemoteState, SettleAgent
from actors.harness.remote_http import AskAgent, HttpAsked, Unfit, Unheard, ask_agent
from actors.harness.settling import settled_calls
from adapters.harnesses import remote
from adapters.harnesses.remote import Accepted, Again, Meaning
from gym_bus.errors import Permanent
from gym_bus.event_log import Draft
from gym_bus.gateway_file import SOCKET_FILE, gateway_directory, listening
from gym_bus.runtime.drive import Drive, Outcome
from gym_bus.secrets_store import SecretsStore
from providers.models.backoff import backoff_s
from schemas.events import RemoteAccepted, RemoteAnswered, RemoteAsked, RemoteFailed
from schemas.values import Failure

GATEWAY_WITHIN_S: Final = 30.0
STOPPED_WITHIN_S: Final = 10.0
POLL_MAX_S: Final = 60.0
REDACTED: Final = b"[redacted]"


class NoWay(Exception):
    """The agent has no way to the gateway; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is sent to an agent in an activation: `begin` asks it, with `headers` it is asked for more. `secrets` are in no event."""

    asked_id: str
    begin: HttpAsked
    headers: dict[str, str]
    secrets: tuple[bytes, ...]
    within_s: float


class RemoteHandlers:
    """The handlers of `FollowAgent` and `SettleAgent`. Tokens for the gateway are signed with the key under `data_dir`."""

    def __init__(self, data_dir: Path, ask: AskAgent = ask_agent) -> None:
        """Reach agents by `ask`."""
        self._data_dir = data_dir
        self._ask = ask
        self._secrets = SecretsStore(data_dir / "secrets")

    async def follow(self, drive: Drive[RemoteState], effect: FollowAgent) -> Outcome:  # noqa: ARG002  all is in the state
        """Return what there is to state next."""
        state = drive.state
        if state.asked is None or state.asked_id is None:
            return None
        try:
            conversation = await self._conversation(drive, state.asked, state.asked_id)
        except NoWay as error:
            return _failed(state.asked_id, Failure(kind="gateway_unreachable", message=str(error), stage="seed"))
        except Permanent as error:
            failure = unsupported(str(error))
            return _failed(state.asked_id, failure)
        found = await self._followed(state, conversation)
        if isinstance(found, Accepted):
            number = state.accepted + 1
            taken = RemoteAccepted(asked_id=state.asked_id, status_url=found.status_url or "", number=number)
            return Draft(taken, state.asked_id, str(number))
        return Draft(found, state.asked_id) if isinstance(found, RemoteAnswered) else _failed(state.asked_id, found)

    async def _followed(self, state: RemoteState, conversation: Conversation) -> RemoteAnswered | Accepted | Failure:
        """Ask as often as may be; return the end, a status URL that is not in the log yet, or why there is neither."""
        agent, at, failed = state.agent, state.status_url, 0
        wait_s = agent.poll_s if at else 0.0
        while True:
            await asyncio.sleep(wait_s)
            found = await self._asked(conversation, at)
            match found:
                case Accepted(status_url=None) if at is None:
                    message = f"the agent at {agent.url} answered 202 without a status_url"
                    return unsupported(message)
                case Accepted(status_url=url) if url not in {None, state.status_url}:
                    is_fickle = state.accepted >= agent.max_tries
                    message = f"the agent at {agent.url} has named {state.accepted} status URLs, one after the other"
                    return Failure(kind="agent_failed", message=message) if is_fickle else found
                case Accepted():
                    failed = failed if at is None else 0
                    at, wait_s = state.status_url, min(max(found.again_in_s or 0.0, agent.poll_s), POLL_MAX_S)
                case Again():
                    failed += 1
                    if failed >= agent.max_tries:
                        return found.failure.replaced(message=f"{found.failure.message} ({failed} tries)")
                    at = None if found.is_forgotten else at
                    wait_s = backoff_s(failed, conversation.asked_id, found.again_in_s)
                case _:
                    return found

    async def _asked(self, conversation: Conversation, at: str | None) -> Meaning:
        """Ask once: what is to be done, or at `at` how it is getting on."""
        asked = HttpAsked("GET", at, conversation.headers) if at else conversation.begin
        try:
            said = await self._ask(asked, conversation.within_s)
        except Unheard as error:
            return remote.unheard(error.kind, asked.url, error)
        except Unfit as error:
            return Failure(kind="agent_failed", message=f"the agent at {asked.url}: {error}")
        body = said.body
        for secret in conversation.secrets:
            body = body.replace(secret, REDACTED)
        meaning = remote.read_status if at else remote.read
        return meaning(conversation.asked_id, asked.url, said.status, said.headers, body)

    async def _conversation(self, drive: Drive[RemoteState], asked: RemoteAsked, asked_id: str) -> Conversation:
        """Return what is sent; raises `NoWay`, and `Permanent` for a key that is not there."""
        state = drive.state
        agent, task = state.agent, state.request.task
        gateway = await self._gateway(agent.url)
        key = await asyncio.to_thread(gateway_key, self._data_dir / "keys")
        where = drive.aggregate.sibling("model", drive.aggregate.key)
        token = mint(key, Grant(where, drive.attempt, asked.activation))
        body = remote.body_of(
            agent, asked, task, state.messages_asked, state.fingerprint, state.deadline, gateway, token
        )
        own = await self._key_of(state)
        if own:
            drive.shell.log.codec.learn(own)
        headers = {"accept": "application/json", **({"authorization": f"Bearer {own}"} if own else {})}
        begin = {**headers, "content-type": "application/json", "idempotency-key": asked.idempotency_key}
        secrets = tuple(secret.encode() for secret in (token, own) if secret)
        return Conversation(
            asked_id, HttpAsked("POST", agent.url, begin, body), headers, secrets, agent.request_timeout_s
        )

    async def _key_of(self, state: RemoteState) -> str | None:
        name = state.agent.api_key
        return await asyncio.to_thread(self._secrets.read, name) if name else None

    async def _gateway(self, agent_url: str) -> str:
        """Return the gateway's address as the agent can reach it; raises `NoWay`."""
        directory = gateway_directory(self._data_dir)
        try:
            address = await listening(directory, GATEWAY_WITHIN_S)
        except TimeoutError as error:
            msg = (
                f"no model gateway listens at {directory / SOCKET_FILE}, after {GATEWAY_WITHIN_S:g} s: "
                "`gym-bus gateway up` starts one"
            )
            raise NoWay(msg) from error
        url = address.url if remote.is_beside_us(agent_url) else address.remote_url
        if url is None:
            msg = (
                f"the model gateway listens at {address.url}, which the agent at {agent_url} cannot reach: set GYM_BUS_DEFAULT_HOST to "
                "an address of this host that means the same from there, then `gym-bus bus down`"
            )
            raise NoWay(msg)
        return url

    async def settle(self, drive: Drive[RemoteState], effect: SettleAgent) -> Outcome:  # noqa: ARG002  all is in the state
        """Have the agent stop if nobody waits for it any more, then settle its calls."""
        state = drive.state
        if state.asked_id is None:
            return None
        if state.status_url and state.answered is None:
            with contextlib.suppress(Unheard, Unfit, Permanent):  # it has its deadline, and its token is refused
                own = await self._key_of(state)
                headers = {"authorization": f"Bearer {own}"} if own else {}
                await self._ask(HttpAsked("DELETE", state.status_url, headers), STOPPED_WITHIN_S)
        return await settled_calls(drive, state.asked_id, state.activation, 1)

    def table(self) -> dict[type[Any], Any]:
        """Return which handler does which effect."""
        return {FollowAgent: self.follow, SettleAgent: self.settle}


def _failed(asked_id: str, failure: Failure) -> Draft:
    return Draft(RemoteFailed(asked_id=asked_id, failure=failure), asked_id)
