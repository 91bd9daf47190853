"""Configurations in which what a task or a user says stands as it was said, in languages that are nearly JSON."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_BRACE: Final = re.compile(r"\{(?![\"}])")
_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def as_yaml(config: Any) -> str:
    """Return it as JSON that is YAML, too, which knows no halves of characters, and takes some for ends of lines or for nothing."""
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(config, ensure_ascii=False))


def without_references(config: Any) -> str:
    """Return it as JSON in which no text holds a brace as itself, for programs that replace `{env:…}` before they read the JSON."""
    return _BRACE.sub(lambda _: "\\u007b", json.dumps(config))
