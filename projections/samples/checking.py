"""The laws of a rebuild, held against what was recorded: nothing lost, nothing twice, nothing made up."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from gym_bus.token_ids import digest_of, ids_of
from projections.samples.call import Call
from projections.samples.sample import Rebuilt, Sample


def check(rebuilt: Rebuilt) -> tuple[str, ...]:
    """Return what is wrong, a sentence each; empty if all laws hold.

    Columns are equally long and spans without gaps. The row up to the end of a call is that call's whole prompt and answer: its
    digest is the recorded one. The mask is 1 on generated tokens only, each with a finite logprob, and somewhere in each row.
    Each generated token of a completed call is trained exactly once or excluded exactly once; every other call is excluded.
    Rows name rows that exist.
    """
    calls = {call.id: call for call in rebuilt.recorded.calls}
    known = {sample.sample_id for sample in rebuilt.samples}
    found: list[str] = []
    if len(known) != len(rebuilt.samples):
        found.append("two rows have the same sample_id")
    for sample in rebuilt.samples:
        problems = [*_columns(sample), *_spans(sample, calls), *_mask(sample), *_names(sample, known)]
        found += [f"row {sample.sample_id}: {problem}" for problem in problems]
    return (*found, *_conservation(rebuilt))


def _columns(sample: Sample) -> Iterator[str]:
    lengths = {len(sample.token_ids), len(sample.loss_mask), len(sample.logprobs)}
    if len(lengths) != 1:
        yield f"columns of {sorted(lengths)} tokens"
    if tuple(span.call_id for span in sample.spans) != sample.call_ids:
        yield "its spans are not its calls"
    if not any(sample.loss_mask):
        yield "no token is trained"


def _spans(sample: Sample, calls: dict[str, Call]) -> Iterator[str]:
    at = 0
    for n, span in enumerate(sample.spans):
        if not at == span.start <= span.generated_start <= span.end:
            yield f"span {n} is [{span.start}, {span.generated_start}, {span.end}) after {at}"
        at = span.end
        call = calls.get(span.call_id)
        if call is None or call.tokens is None:
            yield f"call {span.call_id} is not one with recorded tokens"
        elif sample.token_ids[span.generated_start : span.end] != call.tokens.generated:
            yield f"call {span.call_id} generated other tokens"
        elif digest_of(ids_of(sample.token_ids[: span.end])) != call.tokens.digest:
            yield f"call {span.call_id} had another prompt: the digest differs"
    if at != len(sample.token_ids):
        yield f"spans end at {at}, the row at {len(sample.token_ids)}"
    if sample.spans and sample.prompt_length != sample.spans[0].generated_start:
        yield "prompt_length is not the first call's"


def _mask(sample: Sample) -> Iterator[str]:
    expected = [0] * len(sample.token_ids)
    generated = [False] * len(sample.token_ids)
    for span in sample.spans:
        count = span.end - span.generated_start
        expected[span.generated_start : span.end] = [int(span.is_trained)] * count
        generated[span.generated_start : span.end] = [True] * count
    if expected != list(sample.loss_mask):
        yield "the mask is not 1 on what trained calls generated, and on nothing else"
    for n, (mask, logprob) in enumerate(zip(sample.loss_mask, sample.logprobs, strict=False)):
        if (mask and (logprob is None or not math.isfinite(logprob))) or (logprob is not None and not generated[n]):
            yield f"the logprob at {n} is {logprob}"
            return


def _names(sample: Sample, known: set[str]) -> Iterator[str]:
    for name in (sample.follows, sample.parent, *sample.during):
        if name is not None and name not in known:
            yield f"names row {name}, which there is not"


def _conservation(rebuilt: Rebuilt) -> Iterator[str]:
    trained = Counter(span.call_id for sample in rebuilt.samples for span in sample.spans if span.is_trained)
    excluded = Counter(one.call_id for one in rebuilt.excluded)
    tokens = {one.call_id: one.tokens for one in rebuilt.excluded}
    for call in rebuilt.recorded.calls:
        times = trained[call.id] + excluded[call.id]
        if times != 1:
            yield f"call {call.id} is trained {trained[call.id]} times and excluded {excluded[call.id]} times"
        elif call.state != "completed" and trained[call.id]:
            yield f"call {call.id} is {call.state} and trained"
        elif (
            call.tokens
            and call.tokens.generated
            and excluded[call.id]
            and tokens[call.id] != len(call.tokens.generated)
        ):
            yield f"call {call.id} generated {len(call.tokens.generated)} tokens and excludes {tokens[call.id]}"
    strangers = (set(trained) | set(excluded)) - {call.id for call in rebuilt.recorded.calls}
    for call_id in strangers - {stray.request_id for stray in rebuilt.recorded.strays}:
        yield f"call {call_id} is not in the log"
