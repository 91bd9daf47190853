"""A model's thoughts on their way through a Gemini client, which gives back a signature as it came, and often no thought.

So the signature that a client gets holds the thoughts themselves, with whatever their provider proves them by; it stands on the part
after them, as Gemini's own does. One that was made elsewhere proves nothing to the provider that is asked now.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from providers.dialects.gemini.parts_reading import STANDARD
from schemas.conversation import Reasoning

MARK: Final = b"gym-bus-thoughts:"


def write_proof(thoughts: Sequence[Reasoning]) -> str:
    """Return the signature that holds these thoughts."""
    said = [thought.model_dump(mode="json", exclude_defaults=True) for thought in thoughts]
    return b64encode(MARK + json.dumps(said, separators=(",", ":")).encode()).decode()


def read_proof(signature: str) -> list[Reasoning]:
    """Return the thoughts that a signature holds, none if it was not made here."""
    try:
        content = b64decode(signature.translate(STANDARD) + "==", validate=False)
    except ValueError:
        return []
    if not content.startswith(MARK):
        return []
    try:
        said = json.loads(content.removeprefix(MARK))
        return [Reasoning.model_validate(one) for one in said]
    except (ValueError, RecursionError, TypeError, ValidationError):
        return []
