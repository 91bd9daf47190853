"""Pins a routing proxy's configuration to a run: the SHA-256 of its file goes into the log, so that routes can be compared later."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any, Final

from gym_bus.config_text import Sourced
from gym_bus.errors import BadConfig

DEPLOYMENT_MAX_BYTES: Final = 4 * 1024 * 1024


def pin_routes(sourced: Sourced) -> None:
    """Fill in `model.routing_digest` from the file `model.deployment`; raises `BadConfig` if it cannot be read or lacks the route."""
    model = sourced.values.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("deployment"), str):
        return
    path = Path(model["deployment"])
    content = _content(path)
    digest = hashlib.sha256(content).hexdigest()
    if model.get("routing_digest") not in (None, digest):
        msg = f"model.routing_digest: {path} has the digest {digest}: it was changed, or another file is meant"
        raise BadConfig(msg)
    known, route = _routes(content, path), model.get("policy_model_name")
    if isinstance(route, str) and route not in known:
        msg = f"model.policy_model_name: {path} has no route {route!r}; there are {', '.join(known) or 'none'}"
        raise BadConfig(msg)
    model["routing_digest"] = digest


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(DEPLOYMENT_MAX_BYTES + 1)
    except OSError as error:
        msg = f"model.deployment: {path} cannot be read: {error.strerror or error}"
        raise BadConfig(msg) from error
    if len(content) > DEPLOYMENT_MAX_BYTES:
        msg = f"model.deployment: {path} has more than {DEPLOYMENT_MAX_BYTES:,} bytes"
        raise BadConfig(msg)
    return content


def _routes(content: bytes, path: Path) -> list[str]:
    """Return the ids that clients call routes by; raises `BadConfig` if this is no file of routes."""
    try:
        found: Any = tomllib.loads(content.decode()).get("routes")
    except (ValueError, RecursionError) as error:
        msg = f"model.deployment: {path} is no TOML: {error}"
        raise BadConfig(msg) from error
    if not isinstance(found, dict):
        msg = f"model.deployment: {path} has no routes"
        raise BadConfig(msg)
    return [str(route.get("id", name)) for name, route in found.items() if isinstance(route, dict)]
