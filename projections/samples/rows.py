"""From chains to rows: ids, mask and logarithmic probabilities side by side. Nothing is tokenised and nothing is padded here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from projections.samples.call import Call, Recorded
from projections.samples.chains import Chain, Chains
from projections.samples.relations import Origin, Relation
from projections.samples.sample import Sample, Span
from projections.samples.tree import Tree
from schemas.ids import digest_id


def samples_of(
    recorded: Recorded,
    tree: Tree,
    chains: Chains,
    origins: Mapping[str, Origin],
    untrainable: frozenset[str],
    marks: Mapping[str, tuple[str, ...]],
) -> tuple[Sample, ...]:
    """Return one row for each chain, in their order; `marks` are codes about calls that the rows which own them repeat."""
    ids = {chain: _sample_id(recorded, chain) for chain in chains.chains}
    samples: list[Sample] = []
    rooted: set[str] = set()
    for chain in chains.chains:
        head = tree.calls[chain.head]
        place = tree.places[chain.head]
        origin: Origin | None = None
        parent_call = place.parent_id or head.parent_id
        relation: Relation = "rewritten" if place.start == "rewritten" else "branch"
        if place.start == "root" and tree.groups[chain.head] not in rooted:
            rooted.add(tree.groups[chain.head])
            origin = origins[tree.groups[chain.head]]
            relation = origin.relation
        parent = chains.owner.get(parent_call or "") if origin is None else None
        own = [tree.calls[call_id] for call_id in chain.own]
        spans, mask, logprobs = _columns(tree, chain, untrainable)
        last = tree.calls[chain.calls[-1]]
        samples.append(
            Sample(
                sample_id=ids[chain],
                run_id=recorded.run_id,
                rollout_id=recorded.rollout_id,
                attempt=recorded.attempt,
                task_id=recorded.task_id,
                conversation=head.conversation,
                relation=relation,
                follows=ids[origin.follows] if origin and origin.follows else None,
                parent=ids[parent] if parent else None,
                parent_call_id=parent_call,
                during=tuple(ids[other] for other in origin.during) if origin else (),
                system_digest=head.system_digest,
                tools_digest=head.tools_digest,
                asked_at=head.asked_at,
                answered_at=last.answered_at or 0,
                call_ids=chain.calls,
                token_ids=tuple(last.ids.whole()) if last.ids else (),
                loss_mask=mask,
                logprobs=logprobs,
                spans=spans,
                gaps=_gaps(own, tree, marks, origin),
                prompt_length=spans[0].generated_start,
            )
        )
    return tuple(samples)


def _columns(
    tree: Tree, chain: Chain, untrainable: frozenset[str]
) -> tuple[tuple[Span, ...], tuple[Literal[0, 1], ...], tuple[float | None, ...]]:
    """Return the spans of a chain, its mask and its logarithmic probabilities."""
    own = frozenset(chain.own)
    spans: list[Span] = []
    mask: list[Literal[0, 1]] = []
    logprobs: list[float | None] = []
    for call_id in chain.calls:
        call = tree.calls[call_id]
        is_trained = call_id in own and call_id not in untrainable
        span = _span(call, len(mask), is_trained=is_trained)
        spans.append(span)
        count = span.end - span.generated_start
        trained: Literal[0, 1] = 1 if is_trained else 0
        mask.extend(0 for _ in range(span.start, span.generated_start))
        mask.extend(trained for _ in range(count))
        logprobs += [None] * (span.generated_start - span.start)
        logprobs += call.logprobs or [None] * count
    return tuple(spans), tuple(mask), tuple(logprobs)


def _span(call: Call, start: int, *, is_trained: bool) -> Span:
    tokens = call.tokens
    prompt_length = tokens.prompt_length if tokens else start
    return Span(
        call_id=call.id,
        start=start,
        generated_start=prompt_length,
        end=prompt_length + (len(tokens.generated) if tokens else 0),
        stop_reason=call.stop_reason,
        policy_versions=call.policy_versions,
        logprob_kind=tokens.logprob_kind if tokens else None,
        temperature=call.knobs.temperature,
        top_p=call.knobs.top_p,
        top_k=call.knobs.top_k,
        is_trained=is_trained,
    )


def _sample_id(recorded: Recorded, chain: Chain) -> str:
    """Return an id that says which calls are in the row and which of them are its own."""
    return digest_id(recorded.run_id, recorded.rollout_id, str(recorded.attempt), "sample", chain.head, *chain.calls)


def _gaps(
    own: Iterable[Call], tree: Tree, marks: Mapping[str, tuple[str, ...]], origin: Origin | None
) -> tuple[str, ...]:
    codes = [code for call in own for code in (*call.gaps, *tree.places[call.id].gaps, *marks.get(call.id, ()))]
    return tuple(dict.fromkeys([*codes, *(origin.gaps if origin else ())]))
