"""Anthropic Messages (`POST /v1/messages`): what Claude Code and Anthropic's SDK speak, and vLLM and its like serve."""

from providers.dialects.messages.dialect import Messages

__all__ = ["Messages"]
