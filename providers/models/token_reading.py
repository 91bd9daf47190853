"""Token ids and log-probabilities out of a backend's own JSON, whole or streamed.

Two places are known. vLLM writes `prompt_token_ids` beside the choices (in a stream: into its first chunk), `token_ids` and
`logprobs.content` into the choice. NeMo Gym's model servers write `prompt_token_ids`, `generation_token_ids` and `generation_log_probs`
into the message (Chat Completions) or into an item of the output (Responses). Ids and log-probabilities of one answer come from one of
the two, never from both; nothing is worked out from text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from providers.models.evidence import TokenEvidence
from schemas.tokens import LogprobKind

ID_MAX: Final = 2**31 - 1
VERSIONS_MAX: Final = 16
ROUNDING: Final = 1e-3
"""The logarithm of a probability is not above 0, but for what is lost in half precision."""
ENDS: Final = ("response.completed", "response.incomplete")
VERSION_FIELDS: Final = ("policy_version", "weight_version")


class _NoIds(Exception):
    """Something stands where ids should, or their log-probabilities."""


@dataclass
class _Found:
    prompt: list[int] | None = None
    generated: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    has_generated: bool = False

    @property
    def is_empty(self) -> bool:
        return self.prompt is None and not self.has_generated


class TokenReading:
    """Takes an answer's objects one by one: a whole body, or every event of a stream."""

    def __init__(self, kind: LogprobKind | None) -> None:
        """Say which log-probabilities the backend gives."""
        self._kind: LogprobKind | None = kind
        self._beside = _Found()
        self._inside = _Found()
        self._versions: list[str] = []
        self._problem: str | None = None

    def feed(self, body: Mapping[str, Any]) -> None:
        """Take in one object; what is no token information is passed over."""
        self._note_version(body)
        try:
            self._read_beside(body)
            self._read_inside(body)
        except _NoIds:
            self._problem = "ids_malformed"

    def evidence(self) -> TokenEvidence | None:
        """Return what was found; None if there was nothing about tokens, not even a version."""
        versions = tuple(self._versions)
        found, other = (self._beside, self._inside) if not self._beside.is_empty else (self._inside, self._beside)
        problem = self._problem
        if found.is_empty and problem is None:
            nothing = TokenEvidence(
                (), (), (), logprob_kind=self._kind, policy_versions=versions, problem="no_token_ids"
            )
            return nothing if versions else None
        if not other.is_empty and (found.prompt, found.generated) != (other.prompt, other.generated):
            problem = problem or "sources_disagree"
        logprobs = tuple(found.logprobs)
        problem = problem or _problem_of(found)
        if not all(map(math.isfinite, logprobs)):
            logprobs = ()
        return TokenEvidence(tuple(found.prompt or ()), tuple(found.generated), logprobs, self._kind, versions, problem)

    def _note_version(self, body: Mapping[str, Any]) -> None:
        metadata = body.get("metadata")
        for place in (body, metadata if isinstance(metadata, dict) else {}):
            for name in VERSION_FIELDS:
                version = place.get(name)
                if isinstance(version, str | int) and not isinstance(version, bool):
                    known = self._versions
                    if (not known or known[-1] != str(version)) and len(known) < VERSIONS_MAX:
                        known.append(str(version)[:256])

    def _read_beside(self, body: Mapping[str, Any]) -> None:
        choices = body.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        for place in (body, choice):  # the latter of Completions, and of some releases
            if place.get("prompt_token_ids") is not None:
                prompt = _ids(place["prompt_token_ids"])
                if self._beside.prompt not in (None, prompt):
                    self._problem = self._problem or "prompts_differ"
                self._beside.prompt = prompt
        ids = _ids(choice["token_ids"]) if choice.get("token_ids") is not None else []
        if choice.get("token_ids") is not None:
            self._beside.generated += ids
            self._beside.has_generated = True
        logprobs = choice.get("logprobs")
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        values = [_number(entry.get("logprob")) for entry in _listed(content) if isinstance(entry, dict)]
        self._beside.logprobs += values
        if ids and values and len(ids) != len(values):  # of one chunk: which belongs to which is not known any more
            self._problem = self._problem or "lengths_differ"

    def _read_inside(self, body: Mapping[str, Any]) -> None:
        for place in _bearers(body):
            if place.get("generation_token_ids") is None:
                continue
            self._inside = _Found(
                _ids(place.get("prompt_token_ids") or []),
                _ids(place["generation_token_ids"]),
                _logprobs(place.get("generation_log_probs") or []),
                has_generated=True,
            )


def _bearers(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects that may hold tokens inside of an answer: Chat's message, or the items of Responses."""
    found: list[Any] = []
    for choice in _listed(body.get("choices")):
        if isinstance(choice, dict):
            found += [choice.get("message"), choice.get("delta")]
    output = body.get("output")
    response = body.get("response")
    if isinstance(response, dict) and body.get("type") in ENDS:
        output = response.get("output")
    found += _listed(output)
    return [place for place in found if isinstance(place, dict)]


def _problem_of(found: _Found) -> str | None:
    """Return why what one place says cannot be learned from."""
    if not found.has_generated:
        return "no_generated_ids"
    if not found.prompt:
        return "no_prompt_ids"
    if not found.logprobs and found.generated:
        return "no_logprobs"
    if len(found.logprobs) != len(found.generated):
        return "lengths_differ"
    if not all(map(math.isfinite, found.logprobs)):
        return "logprobs_not_finite"
    return "logprobs_positive" if any(value > ROUNDING for value in found.logprobs) else None


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n <= ID_MAX for n in value):
        raise _NoIds
    return value


def _listed(value: Any) -> list[Any]:
    """Return a list; anything else holds nothing."""
    return value if isinstance(value, list) else []


def _logprobs(value: Any) -> list[float]:
    if not isinstance(value, list):
        raise _NoIds
    return [_number(one) for one in value]


def _number(value: Any) -> float:
    """Return a log-probability; what is none is not finite."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        return math.nan
