"""What pydantic refuses, said as the dialects say it: half a surrogate pair in a text, an infinite number."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pydantic import ValidationError

from providers.dialects.base import Unexpressible
from providers.dialects.fields import where


@contextmanager
def refusing(path: str = "") -> Generator[None]:
    """Raise `Unexpressible` below `path` where a model refuses its values."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(name) for name in first["loc"]) or "body"
        raise Unexpressible(where(path, field), first["msg"]) from error
