"""Projections: everything that can be asked about the log, in DuckDB, thrown away and rebuilt at will.

`ingest` takes stored bytes in, `store` keeps the file, `sql/views` says what everything means; `resume`, `metrics`,
`results`, `invariants` and `ask` answer one question each.
"""

from projections.ask import Question, answer
from projections.ingest import Applied, Batch, Gap, Ingest
from projections.invariants import violations
from projections.metrics import metrics_of
from projections.reader import ShardReader
from projections.results import export
from projections.resume import RunResume, resume_state_of
from projections.store import fingerprint, memory_store, open_store

__all__ = [
    "Applied",
    "Batch",
    "Gap",
    "Ingest",
    "Question",
    "RunResume",
    "ShardReader",
    "answer",
    "export",
    "fingerprint",
    "memory_store",
    "metrics_of",
    "open_store",
    "resume_state_of",
    "violations",
]
