"""Fields of a request that change no answer: another dialect that does not know them may leave them out, and says so."""

from __future__ import annotations

from typing import Any, Final

FIELDS: Final = frozenset(
    {
        "cache_control",
        "client_metadata",
        "diagnostics",
        "eager_input_streaming",
        "inference_geo",
        "metadata",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "repeatedResponse",
        "safety_identifier",
        "service_tier",
        "session_id",
        "speed",
        "store",
        "stream_options",
        "thoughtSignature",
        "usage",
        "user",
        "user_profile_id",
    }
)
"""Who asks, what is kept, what it costs, where it is cached, how it is sent; wherever in the body they stand."""
DEFAULTS: Final[dict[str, Any]] = {
    "background": False,
    "caller": {"type": "direct"},
    "include": ["reasoning.encrypted_content"],
    "modalities": ["text"],
    "n": 1,
    "truncation": "disabled",
}
"""Fields that ask for nothing while they say this."""
NOTHING: Final[tuple[Any, ...]] = (None, [], {})
FILTERS: Final = "safetySettings"
NO_FILTER: Final = ("OFF", "BLOCK_NONE")
"""What Gemini's own filters are told by clients that want none; other providers have no such filters."""
DESCRIBED_BESIDE: Final = "tools.namespaces"
"""What namespaces are about: their tools say it themselves."""


def changes_no_answer(path: str, value: Any) -> bool:
    """Say whether the field at `path` (names joined by dots) may be left out."""
    name = path.rpartition(".")[2]
    if path == DESCRIBED_BESIDE or value in NOTHING or name in FIELDS:
        return True
    if path == FILTERS:
        return isinstance(value, list) and all(
            isinstance(one, dict) and one.get("threshold") in NO_FILTER for one in value
        )
    if name == "context_management":
        edits = value.get("edits") if isinstance(value, dict) and value.keys() == {"edits"} else None
        return isinstance(edits, list) and all(isinstance(edit, dict) and edit.get("keep") == "all" for edit in edits)
    is_of_a_hint = ".cache_control." in path
    return is_of_a_hint or (name in DEFAULTS and value == DEFAULTS[name])
