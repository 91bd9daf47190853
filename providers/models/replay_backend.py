"""The model of a recorded run behind the gateway: a call is found by the digest of the whole conversation that it tells.

What its client writes anew each time is passed over, if no call was told exactly the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from providers.dialects import Dialect, Unexpressible
from providers.dialects.catalog import DIALECTS
from providers.dialects.chat.accounting import write_usage
from providers.dialects.digests import ROOT, chained, continued_reply, links_of, turn_digest
from providers.dialects.unfolding import unfold
from providers.models.backends import Incoming
from providers.models.base import Target
from providers.models.evidence import TokenEvidence
from providers.models.failures import failed
from providers.models.recorded_answer import parts_of, reply_of
from providers.models.replay import Tape, diverged, outcome_of
from providers.models.replay_difference import first_turn_difference, parameter_difference, shared_turns
from providers.models.replay_recording import RecordedCall, RecordedSession
from schemas.config import ReplayModel as ReplayModelConfig
from schemas.conversation import Reply, Request, TokenUsage, Turn
from schemas.tokens import LogprobKind

Plain = Callable[[Turn], Turn]


class Replays:
    """All conversations of one recording, and how often each of their calls has been asked so far in this process."""

    def __init__(self, config: ReplayModelConfig, tries_max: int) -> None:
        """Answer from `config.recording`."""
        self.config = config
        self.tries_max = tries_max
        self.tape = Tape(config.recording)
        self.asked: dict[tuple[str, str], int] = {}
        self._alike: dict[tuple[str, int], dict[str, RecordedCall]] = {}

    def for_session(self, session: str, task_id: str, repeat: int, plain: Plain) -> ReplayBackend:
        """Return the backend for a call of the session that is called `session`; `plain` is what of a turn counts."""
        return ReplayBackend(self, session, task_id, repeat, plain)

    def alike(self, session: RecordedSession, task_id: str, repeat: int, plain: Plain) -> Mapping[str, RecordedCall]:
        """Return the recorded calls of a session by the digest of what counts of their conversations. Blocking."""
        if (task_id, repeat) not in self._alike:
            calls = [(call, links_of(list(map(plain, call.turns())))) for call in session.by_digest.values()]
            self._alike[task_id, repeat] = {links[-1]: call for call, links in reversed(calls) if links}
        return self._alike[task_id, repeat]


class ReplayBackend:
    """See the module. `logprob_kind` is known once a call has been answered."""

    def __init__(self, replays: Replays, session: str, task_id: str, repeat: int, plain: Plain) -> None:
        """Answer for the task `task_id` in its repeat `repeat`."""
        self.dialect: Dialect = DIALECTS[replays.config.api]
        self.max_tries = replays.tries_max
        self.url = replays.config.label
        self.target = Target(self.url)
        self.logprob_kind: LogprobKind | None = None
        self._replays = replays
        self._session = session
        self._task_id = task_id
        self._repeat = repeat
        self._plain = plain

    def adapted(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body as it is."""
        return body

    @asynccontextmanager
    async def open(self, body: dict[str, Any], call_id: str, headers: Mapping[str, str]) -> AsyncGenerator[Incoming]:  # noqa: ARG002  there is no HTTP here
        """Answer a call; see `Backend`."""
        try:
            request = self.dialect.read_request(body)
        except Unexpressible as error:
            raise failed("provider_bad_request", str(error), terminal=True) from error
        session = await self._replays.tape.session(self._task_id, self._repeat)
        recorded = self._exact(session, request)
        if recorded is None:
            recorded = await asyncio.to_thread(self._alike, session, request)
        now = request.model_dump(mode="json")
        if text := parameter_difference(recorded.parameters, now, is_same_client=False):
            raise diverged(self._task_id, self._repeat, f"call {recorded.turn}, {text}")
        answer = outcome_of(recorded, self._tries(recorded), self._task_id, self._repeat)
        tokens = session.evidence(answer)
        self.logprob_kind = (tokens.logprob_kind or "raw") if tokens else None
        reply = reply_of(answer, request.dialect, else_id=f"replay-{call_id}", else_model=request.model)
        yield Incoming(200, {}, self._chunks(reply, request, tokens))

    def _exact(self, session: RecordedSession, request: Request) -> RecordedCall | None:
        begin = self._begin(session, request)
        links = links_of(request.turns, begin)
        return session.by_digest.get(links[-1] if links else begin)

    def _alike(self, session: RecordedSession, request: Request) -> RecordedCall:
        """Return the call that was told the same but for what its client writes anew each time; raises `ModelError`. Blocking."""
        known = self._replays.alike(session, self._task_id, self._repeat, self._plain)
        turns = list(map(self._plain, request.turns))
        begin = self._begin(session, request)
        if begin == ROOT and turns and (found := known.get(links_of(turns)[-1])):
            return found
        told = [(call, tuple(map(self._plain, call.turns()))) for call in session.by_digest.values()]
        nearest = max(told, key=lambda one: shared_turns(one[1], turns), default=None)
        if nearest is None:
            raise diverged(self._task_id, self._repeat, "the recording has no calls of it through the gateway")
        call, then = nearest
        difference = first_turn_difference(then, turns)
        text = f"no call of the recording is told this; the nearest is call {call.turn}, {difference}"
        raise diverged(self._task_id, self._repeat, text)

    @staticmethod
    def _begin(session: RecordedSession, request: Request) -> str:
        """Return the digest of what a request goes on from: an answer that it names, or nothing."""
        named = continued_reply(request)
        for call in session.by_digest.values() if named else ():
            if call.answer and call.answer.reply_id == named:
                return chained([turn_digest("assistant", parts_of(call.answer))], call.digest)[0]
        return named or ROOT

    def _tries(self, recorded: RecordedCall) -> int:
        name = (self._session, recorded.digest)
        self._replays.asked[name] = self._replays.asked.get(name, 0) + 1
        return self._replays.asked[name]

    async def _chunks(self, reply: Reply, request: Request, tokens: TokenEvidence | None) -> AsyncIterator[bytes]:
        is_chat = self.dialect.name == "chat"
        if not request.is_streamed:
            body = self.dialect.write_reply(reply, request)
            if tokens and is_chat:
                body = _with_tokens(body, tokens)
            yield json.dumps(body, ensure_ascii=False).encode(errors="replace")
            return
        writer = self.dialect.stream_writer(request)
        for place, delta in enumerate(unfold(reply)):
            yield writer.write(delta)
            if place == 0 and is_chat:
                yield _facts(reply, tokens)

    def without_key(self, text: str) -> str:
        """Return `text` as it is: there is no key."""
        return text

    async def aclose(self) -> None:
        """Give back nothing."""


def _facts(reply: Reply, tokens: TokenEvidence | None) -> bytes:
    """Return an event of Chat Completions with what a stream would else say only if asked: usage and, as vLLM has them, tokens."""
    usage = reply.usage or TokenUsage()
    body: dict[str, Any] = {
        "id": reply.id,
        "object": "chat.completion.chunk",
        "created": 0,
        "model": reply.model,
        "choices": [{"index": 0, "delta": {}, "finish_reason": None}],
        "usage": write_usage(usage),
    }
    return b"data: " + json.dumps(_with_tokens(body, tokens) if tokens else body).encode() + b"\n\n"


def _with_tokens(body: dict[str, Any], tokens: TokenEvidence) -> dict[str, Any]:
    """Return a body of Chat Completions with ids and log-probabilities, where vLLM has them."""
    content: list[dict[str, Any]] = [
        {"token": "", "bytes": None, "logprob": value, "top_logprobs": []} for value in tokens.logprobs
    ]
    told = {"token_ids": list(tokens.generated), "logprobs": {"content": content}}
    return {**body, "prompt_token_ids": list(tokens.prompt), "choices": [{**body["choices"][0], **told}]}
