"""What is wrong with a backend's answer, said as the dialects say it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pydantic import ValidationError

from providers.dialects.base import Malformed, Unexpressible


@contextmanager
def reading_answer() -> Generator[None]:
    """Raise `Malformed` for whatever is wrong with a backend's answer."""
    try:
        yield
    except Unexpressible as error:
        msg = f"the backend's answer is no message: {error}"
        raise Malformed(msg) from error
    except ValidationError as error:
        msg = f"the backend's answer is no message: {error.errors(include_url=False, include_input=False)[0]}"
        raise Malformed(msg) from error
