"""Which addresses are reached on behalf of a box: those of the public internet, unless a host is said to be private."""

from __future__ import annotations

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

NUMBERED_SERVICES: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
"""What clouds serve their machines at public addresses."""


def why_not(text: str) -> str | None:
    """Return why an address is not reached, None if it is; one that stands for another one (mapped, tunnelled) is judged by both."""
    address = ipaddress.ip_address(text.partition("%")[0])
    for one in (address, *_embedded(address)):
        if reason := _not_public(one):
            return f"{text} is {reason}"
    return None


def _not_public(address: Address) -> str | None:
    if address in NUMBERED_SERVICES:
        return "a cloud's service for its machines"
    kinds = {
        "loopback": address.is_loopback,
        "link-local": address.is_link_local,
        "unspecified": address.is_unspecified,
        "multicast": address.is_multicast,
        "reserved": address.is_reserved and not _mapped(address),
        "private": not address.is_global and not _mapped(address),
    }
    return next((name for name, holds in kinds.items() if holds), None)


def _mapped(address: Address) -> bool:
    """Say whether an address is an IPv4 address in the other's clothes, and nothing by itself."""
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _embedded(address: Address) -> list[Address]:
    """Return the IPv4 addresses that packets to an IPv6 address may end at."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    return [one for one in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())) if one is not None]
