"""Words of others, agents among them, as a terminal may show them."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return a text of which a terminal obeys nothing: line feeds and tabs stay, anything else that is not seen is a space."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)
