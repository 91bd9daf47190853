"""JSON objects as text and back: arguments are raw text in a conversation, and an object in some dialects."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from providers.dialects.base import Unexpressible


def object_text(value: dict[str, Any], path: str) -> str:
    """Return the text of an object, compact, nothing escaped that need not be."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise Unexpressible(path, f"cannot be written as JSON: {error}") from error


def object_of(text: str, path: str) -> dict[str, Any]:
    """Return the object that `text` is; raises `Unexpressible` if it is none, as when the model was cut off."""
    try:
        value = strictly(text)
    except (ValueError, RecursionError) as error:
        raise Unexpressible(path, f"must be a JSON object here, and is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise Unexpressible(path, "must be a JSON object here, and is other JSON")
    return value


def strictly(text: str) -> Any:
    """Return what JSON says; raises `ValueError` for what is none, such as numbers that cannot be written again."""
    return _STRICT.decode(text)


def is_object(text: str) -> bool:
    """Tell whether `text` is a JSON object."""
    try:
        object_of(text, "")
    except Unexpressible:
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    msg = f"{constant} is no number of JSON"
    raise ValueError(msg)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        msg = f"{text} is too large a number"
        raise ValueError(msg)
    return value


_STRICT: Final = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
