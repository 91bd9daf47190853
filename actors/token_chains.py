"""The token ids of a conversation's calls in memory, each as what it adds to an earlier one, as the log has them."""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from gym_bus.event_log import EventLog
from gym_bus.subjects import AggregateId
from gym_bus.token_ids import digest_of, ids_of, shared_length
from providers.models.evidence import TokenEvidence
from schemas.envelope import Envelope
from schemas.events import ModelCallCompleted, ModelCallRequested
from schemas.tokens import CallTokens

WHOLE_KEPT: Final = 2
CHAINS_KEPT: Final = 4_096


@dataclass(frozen=True, slots=True)
class _Link:
    parent_id: str | None
    shared: int
    tail: array[int]


class TokenChains:
    """See the module."""

    def __init__(self) -> None:
        """Begin with no call."""
        self._links: dict[str, _Link] = {}
        self._parents: dict[str, str | None] = {}
        self._whole: OrderedDict[str, array[int]] = OrderedDict()

    def ask(self, call_id: str, parent_id: str | None) -> None:
        """Note a call and the one it continues."""
        self._parents[call_id] = parent_id

    def answer(self, call_id: str, tokens: CallTokens) -> None:
        """Note the tokens of an answered call."""
        self._links[call_id] = _Link(tokens.parent_id, tokens.shared, ids_of((*tokens.prompt, *tokens.generated)))

    def difference(self, call_id: str, evidence: TokenEvidence) -> CallTokens:
        """Return a call's tokens as what they add to the nearest call before it whose tokens are known."""
        prompt = ids_of(evidence.prompt)
        base = self._parents.get(call_id)
        while base is not None and base not in self._links:
            base = self._parents.get(base)
        shared = shared_length(self.whole(base), prompt) if base is not None else 0
        return CallTokens(
            parent_id=base,
            shared=shared,
            prompt=tuple(prompt[shared:]),
            generated=evidence.generated,
            logprobs=evidence.logprobs,
            logprob_kind=evidence.logprob_kind,
            digest=digest_of(prompt + ids_of(evidence.generated)),
        )

    def whole(self, call_id: str) -> array[int]:
        """Return the prompt of an answered call and what it generated; raises `KeyError` for one without tokens."""
        pieces: list[_Link] = []
        at: str | None = call_id
        while at is not None and at not in self._whole:
            pieces.append(self._links[at])
            at = self._links[at].parent_id
        ids = self._whole[at] if at is not None else ids_of(())
        for link in reversed(pieces):
            ids = ids[: link.shared] + link.tail
        self._whole[call_id] = ids
        self._whole.move_to_end(call_id)
        if len(self._whole) > WHOLE_KEPT:
            self._whole.popitem(last=False)
        return ids

    def fields(self, call_id: str, evidence: TokenEvidence | None) -> dict[str, Any]:
        """Return what `ModelCallCompleted` says about an answer's tokens."""
        if evidence is None:
            return {}
        has_ids = bool(evidence.prompt or evidence.generated)
        return {
            "tokens": self.difference(call_id, evidence) if has_ids else None,
            "untrainable": evidence.problem,
            "policy_versions": evidence.policy_versions,
        }

    def note(self, event: Envelope) -> None:
        """Take in an event of the conversation."""
        match event.data:
            case ModelCallRequested():
                self.ask(event.event_id, event.data.parent_id)
            case ModelCallCompleted() if event.data.tokens is not None:
                self.answer(event.data.request_id, event.data.tokens)
            case _:
                pass


class KnownChains:
    """The chains of conversations that native agents have, read from the log when they are not in memory."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._chains: OrderedDict[AggregateId, tuple[TokenChains, int]] = OrderedDict()

    async def recorded(
        self, log: EventLog, where: AggregateId, call_id: str, evidence: TokenEvidence | None
    ) -> dict[str, Any]:
        """Return what `ModelCallCompleted` says about the tokens of `call_id`, whose request is in the log already."""
        if evidence is None:
            return {}
        chains, read_to = self._chains.pop(where) if where in self._chains else (TokenChains(), 0)
        async for event in log.read(f"{where.prefix}.>", read_to):
            chains.note(event)
            read_to = event.sequence
        self._chains[where] = (chains, read_to)
        if len(self._chains) > CHAINS_KEPT:
            self._chains.popitem(last=False)
        return chains.fields(call_id, evidence)
