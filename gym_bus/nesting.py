"""How deep JSON may be nested: what is stored has to be read again, and the parser that reads it stops at 200 levels.

What comes from outside is bounded lower than what is stored, so that it fits whatever an event wraps around it.
"""

from __future__ import annotations

from typing import Final

GIVEN_MAX_LEVELS: Final = 128
"""Of what a client, a backend, a tool or a task gives."""
STORED_MAX_LEVELS: Final = 160
"""Of an event's data."""
_BRACES: Final = bytes.maketrans(b"[]", b"{}")
_NO_BRACE: Final = bytes(set(range(256)) - set(b"[]{}"))


def is_deeper(text: bytes, levels: int) -> bool:
    """Say whether JSON has more than `levels` arrays and objects inside one another.

    Strings are cut out; then each round takes the innermost brackets away. Most texts have too few of them to be looked at.
    """
    if text.count(b"{") + text.count(b"[") <= levels:
        return False
    outside = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2]
    left = b"".join(outside).translate(_BRACES, _NO_BRACE)
    for _ in range(levels):
        if not left:
            return False
        left = left.replace(b"{}", b"")
    return bool(left)
