"""How an answer is to be made, read out of `generationConfig`."""

from __future__ import annotations

from typing import Any, Final

from providers.dialects.base import Unexpressible
from providers.dialects.fields import Fields
from providers.dialects.gemini.names import inner, keep, whole, words
from providers.dialects.gemini.tools_reading import take_schema
from schemas.conversation import Effort, OutputFormat, Thinking

JSON: Final = "application/json"
PLAIN: Final = "text/plain"
DYNAMIC: Final = -1
LEVELS: Final[dict[str, Effort | None]] = {
    "minimal": "minimal",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "thinking_level_unspecified": None,
}
SHOWN: Final = "auto"
"""How thoughts are to be told to a client that wants to read them."""
NAMELESS: Final = "output"
"""Other dialects name a schema; this name changes no answer's form."""


def read_settings(config: Fields | None, others: dict[str, Any]) -> dict[str, Any]:
    """Return all settings by their names in `Request`."""
    if config is None:
        return {}
    if whole(config, "candidateCount") not in (None, 1):
        raise Unexpressible(config.at("candidateCount"), "only one answer to a request can be given: ask again")
    modalities = words(config, "responseModalities") or ()
    if set(modalities) - {"TEXT", "MODALITY_UNSPECIFIED"}:
        raise Unexpressible(config.at("responseModalities"), "answers are text here")
    read = {
        "temperature": config.number("temperature"),
        "top_p": config.number("topP"),
        "top_k": whole(config, "topK"),
        "max_output_tokens": whole(config, "maxOutputTokens"),
        "stop": words(config, "stopSequences"),
        "presence_penalty": config.number("presencePenalty"),
        "frequency_penalty": config.number("frequencyPenalty"),
        "seed": whole(config, "seed"),
        "logprobs": config.flag("responseLogprobs"),
        "top_logprobs": whole(config, "logprobs"),
        "output": _output(config),
        "thinking": _thinking(inner(config, "thinkingConfig"), others),
    }
    keep(config, others)
    return read


def _output(config: Fields) -> OutputFormat | None:
    kind = config.text("responseMimeType")
    schema = take_schema(config, "responseSchema", "responseJsonSchema")
    if kind in {None, "", PLAIN} and schema is None:
        return None
    if kind != JSON:
        raise Unexpressible(config.at("responseMimeType"), f"want {JSON} or {PLAIN}, with a schema the former")
    if schema is None:
        return OutputFormat(mode="json_object")
    return OutputFormat(mode="json_schema", name=NAMELESS, schema_=schema)


def _thinking(config: Fields | None, others: dict[str, Any]) -> Thinking | None:
    """Return how much is to be thought; a budget of -1 is what the model sees fit, of 0 none."""
    if config is None:
        return None
    level, budget = config.text("thinkingLevel"), whole(config, "thinkingBudget")
    if level is not None and level.lower() not in LEVELS:
        raise Unexpressible(config.at("thinkingLevel"), f"want one of {', '.join(LEVELS).upper()}")
    shows = config.flag("includeThoughts")
    keep(config, others)
    thinking = Thinking(
        effort=LEVELS[level.lower()] if level else None,
        budget_tokens=budget if budget is not None and budget > 0 else None,
        is_adaptive=budget == DYNAMIC,
        is_off=budget == 0,
        summary=SHOWN if shows else None,
    )
    return None if thinking == Thinking() else thinking
