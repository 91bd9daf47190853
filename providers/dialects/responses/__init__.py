"""OpenAI Responses."""

from providers.dialects.responses.dialect import Responses

__all__ = ["Responses"]
