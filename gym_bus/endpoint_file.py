"""A file that says where a model's servers are: one address a line, or one JSON list. Whoever starts the servers writes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gym_bus.errors import Retryable
from schemas.addresses import is_alone

FILE_MAX_BYTES: Final = 256 * 1024
ADDRESSES_MAX: Final = 1_000
SHOWN: Final = 80
REMARK: Final = re.compile(r"(?:^|\s)#.*")


class BadEndpointFile(Retryable):
    """The file is missing, empty, or holds something else than addresses; it may be better in a moment."""


def read_addresses(path: Path) -> tuple[str, ...]:
    """Return the addresses that the file names, each once, in its order; raises `BadEndpointFile`.

    Empty lines say nothing, nor does what follows a `#` at the beginning of a line or after a space. One thing in it that is no
    http address makes all of it unfit: a file that is just being written is not half believed.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would keep us waiting
            msg = f"endpoint_file {path} is no file"
            raise BadEndpointFile(msg)
        with path.open("rb") as file:
            content = file.read(FILE_MAX_BYTES + 1)
        if len(content) > FILE_MAX_BYTES:
            msg = f"endpoint_file {path} has more than {FILE_MAX_BYTES:,} bytes"
            raise BadEndpointFile(msg)
        entries = _entries(content.decode("utf-8-sig"))
    except FileNotFoundError as error:
        msg = f"endpoint_file {path} does not exist: it should hold the addresses of the model's servers, one a line"
        raise BadEndpointFile(msg) from error
    except OSError as error:
        msg = f"endpoint_file {path} cannot be read: {error.strerror or error}"
        raise BadEndpointFile(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"endpoint_file {path} holds no list of addresses: {error}"
        raise BadEndpointFile(msg) from error
    addresses = tuple(dict.fromkeys(_checked(entry, path) for entry in entries))
    if not addresses:
        msg = f"endpoint_file {path} is empty: it should hold the addresses of the model's servers, one a line"
        raise BadEndpointFile(msg)
    if len(addresses) > ADDRESSES_MAX:
        msg = f"endpoint_file {path} names {len(addresses):,} addresses; at most {ADDRESSES_MAX:,} are taken"
        raise BadEndpointFile(msg)
    return addresses


def _entries(text: str) -> list[Any]:
    text = text.strip()
    if not text.startswith("["):
        return [line for line in (REMARK.sub("", line).strip() for line in text.splitlines()) if line]
    found = json.loads(text)
    return found if isinstance(found, list) else [found]


def _checked(entry: Any, path: Path) -> str:
    """Return an address; raises `BadEndpointFile` for what is none."""
    text = entry.strip() if isinstance(entry, str) else ""
    try:
        url = urlsplit(text)
        is_address = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_address = False
    if is_address and not is_alone(text):
        what = "a name, a query or a fragment, which stands in the log: give a key as model.policy_api_key"
        msg = f"endpoint_file {path} holds an address with {what}"
        raise BadEndpointFile(msg)
    if not is_address or not text.isprintable() or " " in text:
        msg = f"endpoint_file {path} holds {str(entry)[:SHOWN]!r}, which is no address such as http://10.0.0.7:8000/v1"
        raise BadEndpointFile(msg)
    return text
