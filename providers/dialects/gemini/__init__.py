"""Gemini API (`:generateContent` and its like): what Gemini CLI and Google's SDKs speak. Clients speak it here; no backend does."""

from providers.dialects.gemini.dialect import Gemini

__all__ = ["Gemini"]
