"""The rebuild: the events of one attempt in, training rows out, and every generated token accounted for."""

from __future__ import annotations

from collections.abc import Iterable

from projections.samples.chains import chains_of
from projections.samples.reading import read_calls
from projections.samples.reasons import TRIES_UNRESOLVED, reasons_of, tokens_of, tries_of
from projections.samples.relations import origins_of
from projections.samples.rows import samples_of
from projections.samples.sample import Excluded, Rebuilt, Rejected
from projections.samples.tree import tree_of
from schemas.envelope import Envelope


def rebuild(events: Iterable[Envelope]) -> Rebuilt:
    """Return the rows of one attempt at one rollout; raises `ValueError` if `events` are of several, or none.

    Pure: the same events, in whatever order, give the same rows. Every generated token of every completed call is in exactly
    one row with a mask of 1, or its call is in `excluded`; every other call is in `excluded` too.
    """
    recorded = read_calls(events)
    tries = tries_of(recorded.calls)
    reasons = reasons_of(recorded.calls, tries)
    untrainable = frozenset(reasons)
    tree = tree_of({call.id: call for call in recorded.calls})
    chains = chains_of(tree, untrainable)
    marks = dict.fromkeys(tries.unresolved, (TRIES_UNRESOLVED,))
    samples = samples_of(recorded, tree, chains, origins_of(tree, chains), untrainable, marks)
    excluded = [
        Excluded(call_id=call.id, conversation=call.conversation, reason=reasons[call.id], tokens=tokens_of(call))
        for call in recorded.calls
        if call.id in reasons
    ]
    excluded += [
        Excluded(
            call_id=stray.request_id, conversation=stray.conversation, reason="request_unknown", tokens=stray.tokens
        )
        for stray in recorded.strays
    ]
    return Rebuilt(recorded, samples, tuple(excluded), tuple(Rejected(call_ids=cut) for cut in chains.cut))
