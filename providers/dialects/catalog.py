"""The dialects that there are, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from providers.dialects.base import ClientDialect, Dialect
from providers.dialects.chat import Chat
from providers.dialects.gemini import Gemini
from providers.dialects.messages import Messages
from providers.dialects.responses import Responses
from schemas.conversation import DialectName

DIALECTS: Final[Mapping[DialectName, Dialect]] = {"chat": Chat(), "responses": Responses(), "messages": Messages()}
"""Those that backends speak, and clients too."""
CLIENTS: Final[Mapping[DialectName, ClientDialect]] = {**DIALECTS, "gemini": Gemini()}
"""Those that clients speak."""
