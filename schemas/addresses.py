"""Addresses that a configuration names. They stand in the log and in the results, so nothing in one may be a secret."""

from __future__ import annotations

from urllib.parse import urlsplit


class NotAlone(ValueError):
    """An address holds what may be a secret, or a port that is none; what was found is not to be shown beside it."""


def has_name(address: str) -> bool:
    """Say whether an address begins with a name or a password, `name:password@`."""
    _, _, after = address.partition("://")
    return "@" in (after or address).replace("?", "/").replace("#", "/").lstrip("/").partition("/")[0]


def is_alone(address: str) -> bool:
    """Say whether an address has neither a name nor a query nor a fragment, any of which may be a secret."""
    return not (has_name(address) or "?" in address or "#" in address)


def bad_port(address: str) -> bool:
    """Say whether what an address gives as its port is none."""
    try:
        return urlsplit(address).port == 0
    except ValueError:
        return True


def alone(address: str, instead: str) -> str:
    """Return an address of nothing but scheme, host, port and path.

    One with a name, a query or a fragment is refused with `NotAlone`, and so is one whose port is none.
    `instead` says where a key belongs.
    """
    if not is_alone(address):
        msg = "an address with a name, a query or a fragment may hold a secret, and stands in the log: " + instead
        raise NotAlone(msg)
    if bad_port(address):
        msg = f"{address!r} has no port from 1 to 65535"
        raise NotAlone(msg)
    return address
