"""OpenAI Chat Completions, with what vLLM, SGLang, DeepSeek, OpenRouter and litellm add to it."""

from providers.dialects.chat.dialect import Chat

__all__ = ["Chat"]
