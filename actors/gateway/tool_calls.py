"""What an agent calls of its task's tools, in the log: claimed by this process, asked of the verifier, and answered from the log again.

A client that sends a call twice, and a program that is run again and makes the same calls again, get the answer that there is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from actors.gateway.grants import Grant
from actors.gateway.sessions import OpenSession
from actors.gateway.tool_answers import ToolAnswers
from gym_bus.clock import Clock
from gym_bus.errors import BusUnavailable
from gym_bus.event_log import Draft, EventLog, Held, Writer
from gym_bus.nesting import GIVEN_MAX_LEVELS, is_deeper
from gym_bus.runtime.presence import Presence
from schemas.envelope import Envelope
from schemas.events import TaskToolCallReplayed, TaskToolCallRequested
from schemas.harnesses import BehindGateway
from schemas.ids import tools_key
from schemas.loops import OwnLoop
from tools.task_answers import LATE, Told, told

ARGUMENTS_MAX_BYTES: Final = 256 * 1024
CALLS_MAX: Final = 10_000
AT_ONCE_MAX: Final = 64
SLACK_S: Final = 5.0
"""What is waited longer than the one that executes a call may take: what it says of it has to be heard."""
SHORTEST_S: Final = 1.0
STATED_WITHIN_S: Final = 30.0
"""How long a call waits for the log before anything is asked of the verifier."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that stands in the log."""

    event: Envelope
    asked: TaskToolCallRequested


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A call as the client makes it."""

    tool: str
    arguments: Mapping[str, Any]
    grant: str | None = None
    client_id: str | None = None

    @property
    def fingerprint(self) -> tuple[str, str]:
        """Return what two calls have in common that are the same."""
        return self.tool, json.dumps(self.arguments, sort_keys=True)


def _unfit(wanted: Wanted) -> str | None:
    """Return why arguments cannot be written down, None if they can."""
    try:
        text = json.dumps(wanted.arguments, allow_nan=False).encode()
        TaskToolCallRequested(
            number=1, tool=wanted.tool, arguments=dict(wanted.arguments), timeout_s=1
        ).model_dump_json()
    except (ValueError, RecursionError) as error:
        return f"The arguments cannot be recorded ({type(error).__name__}: {error!s:.200})"
    if is_deeper(text, GIVEN_MAX_LEVELS):
        return f"The arguments have more than {GIVEN_MAX_LEVELS} levels"
    return f"The arguments are longer than {ARGUMENTS_MAX_BYTES} bytes" if len(text) > ARGUMENTS_MAX_BYTES else None


class ToolCalls:
    """See the module: those of one session. What appends raises `Held`, `Fenced`, as a conversation does."""

    def __init__(
        self, log: EventLog, clock: Clock, grant: Grant, session: OpenSession, presence: Presence, answers: ToolAnswers
    ) -> None:
        """Record calls of the session that `grant` is for, and wait for them with `answers`."""
        self._log = log
        self._clock = clock
        self._where = grant.conversation.sibling("model", tools_key(grant.attempt))
        self._attempt = grant.attempt
        self._session = session
        self._presence = presence
        self._answers = answers
        self._turn_to_write = asyncio.Lock()
        self._writer: Writer | None = None
        self._under_way = 0
        self._forget()

    def _forget(self) -> None:
        self._made: list[Made] = []
        self._by_client: dict[tuple[str, str, str], int] = {}
        self._repeated: dict[tuple[int, int], set[int]] = {}

    async def call(self, wanted: Wanted, activation: int, launch: int) -> Told:
        """Have a tool executed, or find that it was; return what the agent is told."""
        if refused := _unfit(wanted):
            return Told(f"{refused}: nothing was done.", is_error=True)
        if self._under_way >= AT_ONCE_MAX:
            return Told(f"{self._under_way} calls are under way already: nothing was done.", is_error=True)
        self._under_way += 1
        try:
            made = await self._stated_in_time(wanted, activation, launch)
            if isinstance(made, Told):
                return made
            left_s = made.asked.timeout_s - (self._clock.now() - made.event.recorded_at).total_seconds()
            within_s = max(left_s, 0.0) + SLACK_S
            answer = await self._answers.of(self._where, self._attempt, made.asked.number, made.event, within_s)
            return told(answer)
        except TimeoutError:
            return Told(LATE.format(timeout_s=self._timeout_s()), is_error=True)
        finally:
            self._under_way -= 1

    async def _stated_in_time(self, wanted: Wanted, activation: int, launch: int) -> Made | Told:
        try:
            async with asyncio.timeout(STATED_WITHIN_S):
                return await self._stated(wanted, activation, launch)
        except TimeoutError as error:
            raise BusUnavailable(f"the log did not answer for {STATED_WITHIN_S:g} s") from error

    async def _stated(self, wanted: Wanted, activation: int, launch: int) -> Made | Told:
        """Return the call as it stands in the log, put there if it is new."""
        async with self._turn_to_write:
            await self._claimed()
            if wanted.client_id and (known := self._by_client.get((wanted.client_id, *wanted.fingerprint))):
                return self._made[known - 1]
            if again := self._made_before(wanted, activation, launch):
                replayed = TaskToolCallReplayed(
                    number=again, activation=activation, launch=launch, client_id=wanted.client_id
                )
                self._note(await self._append(Draft(replayed, self._made[again - 1].event.event_id, str(launch))))
                return self._made[again - 1]
            if len(self._made) >= CALLS_MAX:
                return Told(f"{CALLS_MAX} calls were made already: nothing was done.", is_error=True)
            asked = TaskToolCallRequested(
                number=len(self._made) + 1,
                tool=wanted.tool,
                arguments=dict(wanted.arguments),
                timeout_s=self._timeout_s(),
                grant=wanted.grant,
                activation=activation,
                launch=launch,
                client_id=wanted.client_id,
            )
            event = await self._append(Draft(asked, self._session.request_id, str(asked.number)))
            self._note(event)
            return self._made[-1]

    def _made_before(self, wanted: Wanted, activation: int, launch: int) -> int | None:
        """Return the number of the first such call of an earlier run of the program that this one has not made again yet."""
        repeated = self._repeated.get((activation, launch), set())
        for made in self._made:
            asked = made.asked
            is_earlier = asked.activation == activation and asked.launch < launch and asked.number not in repeated
            if is_earlier and Wanted(tool=asked.tool, arguments=asked.arguments).fingerprint == wanted.fingerprint:
                return asked.number
        return None

    def _timeout_s(self) -> float:
        """Return what a call may take: as configured, and no longer than the session has."""
        agent = self._session.request.agent
        passed_s = (self._clock.now() - self._session.asked_at).total_seconds()
        configured = agent.timeout_s
        if isinstance(agent, OwnLoop):
            configured = agent.tool_timeout_s
        elif isinstance(agent, BehindGateway):
            configured = agent.mcp_timeout_s
        return round(max(min(configured, agent.timeout_s - passed_s), SHORTEST_S), 3)

    async def _append(self, draft: Draft) -> Envelope:
        try:
            return await self._log.append(cast("Writer", self._writer), draft)
        except BaseException:  # fenced, or whether it was stored is not known
            self._writer = None
            raise

    async def _claimed(self) -> None:
        """Become the writer, if we are not, and know what is in the log."""
        if self._writer is not None:
            return
        request_id = self._session.request_id
        writer = await self._log.claim(self._where, self._attempt, request_id)
        if writer is None:
            self._forget()
            try:
                writer = await self._log.claim_over(self._where, self._attempt, request_id, self._is_other_alive)
            except Held as error:
                raise Held(error.owner, self._presence.remaining_s(error.owner)) from error
            async for event in self._log.read(f"{self._where.prefix}.>"):
                self._note(event)
        self._writer = writer

    def _is_other_alive(self, worker: str) -> bool:
        return worker != self._log.worker and self._presence.is_alive(worker)

    def _note(self, event: Envelope) -> None:
        data = event.data
        if isinstance(data, TaskToolCallRequested):
            self._made.append(Made(event, data))
        elif isinstance(data, TaskToolCallReplayed):
            self._repeated.setdefault((data.activation, data.launch), set()).add(data.number)
        else:
            return
        if data.client_id:  # one that says something else under an old name is another call
            asked = self._made[data.number - 1].asked
            fingerprint = Wanted(tool=asked.tool, arguments=asked.arguments).fingerprint
            self._by_client[data.client_id, *fingerprint] = data.number
