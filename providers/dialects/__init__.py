"""The dialects of model APIs, and the conversions between them: each is read into one form and written from it."""

from providers.dialects.base import (
    ClientDialect,
    Dialect,
    Malformed,
    Problem,
    StreamReader,
    StreamWriter,
    Unexpressible,
    Written,
)

__all__ = [
    "ClientDialect",
    "Dialect",
    "Malformed",
    "Problem",
    "StreamReader",
    "StreamWriter",
    "Unexpressible",
    "Written",
]
