"""The rebuild projection: a rollout's recorded model calls, as a tree and then as training rows (docs/samples.md).

`reading` makes calls of events and `restoring` puts their token ids back together; `tree` says which call continues which, `reasons`
which cannot be trained, `chains` cuts the tree into rows, `relations` says what each row is to the others, `rows` builds them.
`rebuild` is all of it, and `check` holds the outcome against what was recorded. Pure functions all; what is read from where is
the caller's business.
"""

from projections.samples.checking import check
from projections.samples.reading import by_attempt
from projections.samples.rebuild import rebuild
from projections.samples.sample import Excluded, Rebuilt, Rejected, Sample, Span

__all__ = ["Excluded", "Rebuilt", "Rejected", "Sample", "Span", "by_attempt", "check", "rebuild"]
