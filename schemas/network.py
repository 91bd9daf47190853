"""Names of hosts that a sandbox may reach, as they are written in a configuration: `name` (port 443), `name:port`, `*.name`.

`*.name` stands for every name below `name`, and not for `name` itself. Addresses, ranges of them, and a `*` anywhere else cannot be
said: who is behind an address changes, and a name says what is meant. Names beyond ASCII are written as DNS has them (xn--…).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

DEFAULT_PORT: Final = 443
PORT_MAX: Final = 65_535
NAME_MAX: Final = 253
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Host:
    """A name, or all names below it, at one port."""

    name: str
    port: int = DEFAULT_PORT
    is_suffix: bool = False

    def __str__(self) -> str:
        name = f"*.{self.name}" if self.is_suffix else self.name
        return name if self.port == DEFAULT_PORT else f"{name}:{self.port}"

    def covers(self, name: str, port: int) -> bool:
        """Say whether a name, written by `plain_name`, is meant."""
        is_meant = name.endswith(f".{self.name}") if self.is_suffix else name == self.name
        return is_meant and port == self.port


def plain_name(text: str) -> str:
    """Return a host's name in the one way we write it; raises `ValueError` if it is none, or an address in any disguise."""
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > NAME_MAX:
        msg = f"{text[:80]!r} is no host's name: it has {'no' if not name else 'too many'} letters"
        raise ValueError(msg)
    if ":" in text or "[" in text or _NUMBER.fullmatch(labels[-1]):
        msg = f"{text!r} is an address, or looks like one: hosts are named, never numbered"
        raise ValueError(msg)
    for label in labels:
        if not _LABEL.fullmatch(label):
            advice = "" if label.isascii() else ", written without letters beyond ASCII (xn--…)"
            msg = f"{text!r} is no host's name: want letters, digits and hyphens between dots{advice}"
            raise ValueError(msg)
    return name


def parse_host(text: str) -> Host:
    """Return what an entry of an allow list says; raises `ValueError` that says what is wrong with it and how it is written."""
    if "/" in text:
        msg = f"{text!r}: want a host's name, no address of a page and no range: `name`, `name:port` or `*.name`"
        raise ValueError(msg)
    name, colon, port = text.strip().rpartition(":") if text.count(":") == 1 else (text.strip(), "", "")
    if colon and not (_PORT.fullmatch(port) and 1 <= int(port) <= PORT_MAX):
        msg = f"{text!r}: the port must be a number from 1 to {PORT_MAX}"
        raise ValueError(msg)
    is_suffix = name.startswith("*.")
    name = name.removeprefix("*.")
    if "*" in name:
        msg = f"{text!r}: a `*` stands only at the beginning, before a name: `*.name`"
        raise ValueError(msg)
    return Host(plain_name(name), int(port) if colon else DEFAULT_PORT, is_suffix)


def parse_hosts(texts: Iterable[str]) -> tuple[Host, ...]:
    """Return an allow list; raises `ValueError`."""
    return tuple(parse_host(text) for text in texts)
