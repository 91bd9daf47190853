"""Schemas in Gemini's own words, which are OpenAPI's with types in capitals, put into those of JSON Schema."""

from __future__ import annotations

import re
from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.gemini.names import SPELLED

TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})
"""Numbers of 64 bits, which Google's clients write as strings."""
ONLY_HERE: Final = frozenset({"propertyOrdering"})
DEPTH_MAX: Final = 100
COUNT: Final = re.compile("[0-9]{1,19}")


def json_schema_of(schema: Any, path: str, depth: int = 0) -> dict[str, Any]:
    """Return `schema` as JSON Schema says it; raises `Unexpressible` for a type that neither knows."""
    if not isinstance(schema, dict):
        raise Unexpressible(path, "want an object: a schema")
    if depth > DEPTH_MAX:
        raise Unexpressible(path, f"a schema of more than {DEPTH_MAX} levels")
    written: dict[str, Any] = {}
    for spelled, value in schema.items():
        name = SPELLED.sub(lambda match: match[1].upper(), spelled)
        if value is not None and name not in ONLY_HERE:
            written |= _said(name, value, f"{path}.{name}", depth + 1)
    return _nullable(written) if schema.get("nullable") is True else written


def _said(name: str, value: Any, at: str, depth: int) -> dict[str, Any]:
    """Return what one field says, as one of JSON Schema or none."""
    match name:
        case "type":
            return _typed(value, at)
        case "nullable":
            return {}
        case "properties":
            return {name: {key: json_schema_of(one, f"{at}.{key}", depth) for key, one in _members(value, at)}}
        case "items":
            return {name: json_schema_of(value, at, depth)}
        case "anyOf":
            return {name: [json_schema_of(one, f"{at}.{n}", depth) for n, one in enumerate(_listed(value, at))]}
        case _:
            return {name: _counted(value, at) if name in COUNTS and isinstance(value, str) else value}


def _members(value: Any, path: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise Unexpressible(path, "want an object")
    return list(value.items())


def _listed(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise Unexpressible(path, "want a list")
    return value


def _counted(text: str, path: str) -> int:
    if not COUNT.fullmatch(text):
        raise Unexpressible(path, "want a whole number of at most 64 bits")
    return int(text)


def _typed(value: Any, path: str) -> dict[str, Any]:
    if value == "TYPE_UNSPECIFIED":
        return {}
    kind = value.lower() if isinstance(value, str) else None
    if kind not in TYPES:
        raise Unexpressible(path, f"want one of {', '.join(sorted(TYPES)).upper()}")
    return {"type": kind}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "type" in schema:
        enum = {"enum": [*schema["enum"], None]} if isinstance(schema.get("enum"), list) else {}
        return {**schema, "type": [schema["type"], "null"], **enum}
    return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]} if "anyOf" in schema else schema
