"""Token ids and log-probabilities as backends write them; what does not agree is said, and never repaired."""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.token_chains import TokenChains
from gym_bus.token_ids import digest_of, ids_of, shared_length
from providers.models.evidence import TokenEvidence
from providers.models.token_reading import TokenReading

PROMPT, GENERATED, LOGPROBS = [1, 2, 3], [7, 8], [-0.5, -1.25]
CONTENT = [{"token": "a", "logprob": value} for value in LOGPROBS]
WHOLE = {
    "prompt_token_ids": PROMPT,
    "choices": [{"token_ids": GENERATED, "logprobs": {"content": CONTENT}}],
}
CHUNKS: list[dict[str, Any]] = [
    {"prompt_token_ids": PROMPT, "choices": [{"delta": {"role": "assistant"}}]},
    {"choices": [{"token_ids": [7], "logprobs": {"content": CONTENT[:1]}, "delta": {"content": "a"}}]},
    {"choices": [{"token_ids": [8], "logprobs": {"content": CONTENT[1:]}, "delta": {"content": "b"}}]},
    {"choices": [{"token_ids": None, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {}},
]
INSIDE = {"prompt_token_ids": PROMPT, "generation_token_ids": GENERATED, "generation_log_probs": LOGPROBS}


def read(*bodies: dict[str, Any]) -> TokenEvidence | None:
    reading = TokenReading("raw")
    for body in bodies:
        reading.feed(body)
    return reading.evidence()


GOOD = TokenEvidence((1, 2, 3), (7, 8), (-0.5, -1.25), "raw")


@pytest.mark.parametrize(
    "bodies",
    [
        [WHOLE],
        CHUNKS,
        [{"choices": [{"message": INSIDE}]}],
        [{"output": [{"type": "message"}, INSIDE]}],
        [{"type": "response.completed", "response": {"output": [INSIDE]}}],
        [{**WHOLE, "output": [INSIDE]}],
    ],
    ids=["whole", "streamed", "in the message", "in an item", "in a stream's last item", "twice, and the same"],
)
def test_every_place_says_the_same(bodies: list[dict[str, Any]]) -> None:
    """The places of vLLM, and those of NeMo Gym."""
    assert read(*bodies) == GOOD


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"choices": [{"logprobs": {"content": CONTENT}}], "prompt_token_ids": PROMPT}, "no_generated_ids"),
        ({"choices": [{"token_ids": GENERATED, "logprobs": {"content": CONTENT}}]}, "no_prompt_ids"),
        ({"choices": [{"token_ids": GENERATED}], "prompt_token_ids": PROMPT}, "no_logprobs"),
        ({**WHOLE, "choices": [{"token_ids": [7, 8, 9], "logprobs": {"content": CONTENT}}]}, "lengths_differ"),
        ({**WHOLE, "choices": [{"token_ids": [7], "logprobs": {"content": [{"logprob": math.nan}]}}]}, "logprobs_not_finite"),
        ({**WHOLE, "choices": [{"token_ids": [7], "logprobs": {"content": [{"logprob": None}]}}]}, "logprobs_not_finite"),
        ({**WHOLE, "choices": [{"token_ids": [7], "logprobs": {"content": [{"logprob": 10**400}]}}]}, "logprobs_not_finite"),
        ({**WHOLE, "choices": [{"token_ids": [7], "logprobs": {"content": [{"logprob": 0.7}]}}]}, "logprobs_positive"),
        ({**WHOLE, "prompt_token_ids": ["1"]}, "ids_malformed"),
        ({**WHOLE, "prompt_token_ids": [True]}, "ids_malformed"),
        ({**WHOLE, "prompt_token_ids": [-1]}, "ids_malformed"),
        ({**WHOLE, "output": [{**INSIDE, "generation_token_ids": [7, 9]}]}, "sources_disagree"),
        ({"output": [{**INSIDE, "generation_log_probs": 5}]}, "ids_malformed"),
        ({"output": [{**INSIDE, "generation_log_probs": {"a": 1}}]}, "ids_malformed"),
        ({"prompt_token_ids": PROMPT, "choices": [{"token_ids": [7], "logprobs": {"content": 5}}]}, "no_logprobs"),
    ],
)  # fmt: skip
def test_what_does_not_agree_cannot_be_learned_from(body: dict[str, Any], problem: str) -> None:
    """566 ids with 565 log-probabilities, ids of one place with log-probabilities of another: said by a code, padded by nothing."""
    found = read(body)
    assert found is not None
    assert found.problem == problem
    assert all(map(math.isfinite, found.logprobs))


@pytest.mark.parametrize("odd", [5, True, "x", {"a": 1}, [[]]])
def test_what_stands_where_something_else_should_is_no_token_information(odd: Any) -> None:
    for name in ("choices", "output", "type", "metadata", "response"):
        assert read({"response": {}, name: odd}) is None


def test_chunks_agree_one_by_one() -> None:
    """Two log-probabilities in the chunk after the one that had none: the sum is right, and what belongs to what is not known."""
    first = {"prompt_token_ids": PROMPT, "choices": [{"token_ids": [7], "logprobs": {"content": []}}]}
    found = read(first, {"choices": [{"token_ids": [8], "logprobs": {"content": CONTENT}}]})
    assert found is not None
    assert found.problem == "lengths_differ"
    other = read(
        first, {"prompt_token_ids": [9], "choices": [{"token_ids": [8], "logprobs": {"content": CONTENT[:1]}}]}
    )
    assert other is not None
    assert other.problem == "prompts_differ"


def test_a_backend_without_tokens_says_nothing() -> None:
    """Log-probabilities that a client asked for by itself are no token information."""
    assert read({"choices": [{"message": {"content": "hi"}}], "usage": {"total_tokens": 3}}) is None


def test_the_weights_may_change_in_the_middle() -> None:
    """Versions are kept in the order in which they answered; only a change counts."""
    chunks = [{**chunk, "policy_version": version} for chunk, version in zip(CHUNKS, [7, 7, "8", "8", 8], strict=True)]
    found = read(*chunks)
    assert found is not None
    assert found.policy_versions == ("7", "8")
    assert read({"metadata": {"weight_version": "w1"}}) == TokenEvidence((), (), (), "raw", ("w1",), "no_token_ids")


IDS = st.lists(st.integers(0, 3), max_size=12)


@given(IDS, IDS)
def test_the_shared_beginning_is_found(one: list[int], other: list[int]) -> None:
    """By halves, as by looking at each."""
    naive = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert shared_length(ids_of(one), ids_of(other)) == naive


@given(st.lists(st.tuples(IDS, IDS, st.integers(-1, 20)), min_size=1, max_size=12))
def test_differences_are_put_together_again(calls: list[tuple[list[int], list[int], int]]) -> None:
    """Whatever each call's prompt has in common with the one it continues: all come out whole, in another process too."""
    chains, others = TokenChains(), TokenChains()
    stored = []
    for n, (prompt, generated, parent) in enumerate(calls):
        parent_id = str(parent) if 0 <= parent < n else None
        chains.ask(str(n), parent_id)
        tokens = chains.difference(str(n), TokenEvidence(tuple(prompt), tuple(generated), (0.0,) * len(generated)))
        assert tokens.parent_id == parent_id
        chains.answer(str(n), tokens)
        stored.append(tokens)
        assert tokens.digest == digest_of(ids_of([*prompt, *generated]))
    for n, tokens in enumerate(stored):
        others.answer(str(n), tokens)
    for n in reversed(range(len(calls))):
        assert list(others.whole(str(n))) == [*calls[n][0], *calls[n][1]]


def test_a_digest_means_the_same_everywhere() -> None:
    """A domain, the count, the ids; eight big-endian bytes each, whatever machine packs them."""
    expected = hashlib.sha256(b"gym-bus token ids\x01" + struct.pack(">4q", 3, 1, 2, 300_000)).hexdigest()
    assert digest_of(ids_of([1, 2, 300_000])) == expected
