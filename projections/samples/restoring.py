"""Token ids of calls, from what each added to the call before: put back together, and held against the recorded digest."""

from __future__ import annotations

from collections.abc import Mapping

from gym_bus.token_ids import digest_of, ids_of
from projections.samples.call import Restored
from projections.samples.ids import Ids
from schemas.tokens import CallTokens


def restored(tokens: CallTokens, parents: Mapping[str, Ids]) -> Restored:
    """Return a call's tokens; `parents` holds the ids of the calls that were answered before it.

    Its `ids` are None if a parent whose ids it needs is missing or too short, if an id is no 64-bit number, or if the digest
    says that these are other ids than those that the backend named.
    """
    ids = _put_together(tokens, parents)
    if ids is not None and digest_of(ids.whole()) != tokens.digest:
        ids = None
    return Restored(
        parent_id=tokens.parent_id,
        ids=ids,
        prompt_length=tokens.shared + len(tokens.prompt),
        generated=tokens.generated,
        logprobs=tokens.logprobs,
        logprob_kind=tokens.logprob_kind,
        digest=tokens.digest,
    )


def _put_together(tokens: CallTokens, parents: Mapping[str, Ids]) -> Ids | None:
    try:
        own = ids_of((*tokens.prompt, *tokens.generated))
    except OverflowError:
        return None
    if not tokens.shared:
        return Ids(None, 0, own)
    base = parents.get(tokens.parent_id or "")
    return Ids(base, tokens.shared, own) if base and base.length >= tokens.shared else None
