"""Images of a container engine: pulled where they are missing, or built of a Dockerfile, told step by step. Blocking.

What is built is named by the digest of its directory, so it is built once and never stale.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import quote, urlencode

from gym_bus.engine_http import ANSWER_MAX_BYTES, asked, words_of
from gym_bus.errors import GymBusError
from schemas.sandboxes import Docker

LOOK_S: Final = 10.0
SILENT_S: Final = 300.0
"""How long an engine may say nothing while it pulls or builds."""
CONTEXT_MAX_BYTES: Final = 1024 * 1024 * 1024
CONTEXT_MAX_FILES: Final = 50_000
LINE_MAX_BYTES: Final = 1024 * 1024
BUILT: Final = "gymbus-built"
TAIL: Final = 10
"""So many of a failed build's last lines are in its error."""

Told = Callable[[str], None]


class ImageUnavailable(GymBusError):
    """An image could not be pulled or built; the message holds the engine's words."""


def image_of(config: Docker) -> str:
    """Return the name of the image that a sandbox is made of; raises `ImageUnavailable` for a Dockerfile that cannot be read."""
    if config.image is not None:
        return config.image
    return built_name(Path(config.dockerfile or ""))


def has_image(socket: str, image: str) -> bool:
    """Say whether the engine has the image; raises `ImageUnavailable` if it cannot say."""
    try:
        with asked(socket, "GET", f"/images/{quote(image, safe='/:@')}/json", LOOK_S) as answer:
            if answer.status == HTTPStatus.NOT_FOUND:
                return False
            if answer.status != HTTPStatus.OK:
                raise ImageUnavailable(f"the container engine at {socket} says {answer.status}: {_said(answer)}")
            return True
    except (OSError, http.client.HTTPException) as error:
        raise ImageUnavailable(f"the container engine at {socket} does not answer: {error}") from error


def fetch(socket: str, config: Docker, told: Told) -> None:
    """Pull or build the image of `config`; `told` hears of it. Raises `ImageUnavailable`."""
    if config.image is None:
        _build(socket, Path(config.dockerfile or ""), config, told)
    else:
        _pull(socket, config.image, config.image_timeout_s, told)


def built_name(dockerfile: Path) -> str:
    """Return the name of what is built of a Dockerfile and the directory it is in; raises `ImageUnavailable`."""
    digest = hashlib.sha256(dockerfile.name.encode())
    try:
        for path, name in _context(dockerfile):
            mode = path.lstat().st_mode
            digest.update(f"{name}\0{mode & 0o170111:o}\0".encode())
            if path.is_symlink():
                digest.update(os.fsencode(path.readlink()))
            elif path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise ImageUnavailable(f"{dockerfile}: cannot be read: {error.strerror or error}") from error
    return f"{BUILT}:{digest.hexdigest()[:24]}"


def _pull(socket: str, image: str, within_s: float, told: Told) -> None:
    name, tag = _split(image)
    question = f"/images/create?{urlencode({'fromImage': name, **({'tag': tag} if tag else {})})}"
    layers: dict[str, str] = {}
    for said in _told_by(socket, question, within_s, f"image {image} was not pulled"):
        layer, status = said.get("id"), str(said.get("status", ""))
        if layer is None or status.startswith("Pulling from"):
            continue
        layers[str(layer)] = status
        done = sum(s in {"Pull complete", "Already exists"} for s in layers.values())
        told(f"pulling {image}: {done} of {len(layers)} layers{_size(said)}")
    told(f"pulled {image}")


def _build(socket: str, dockerfile: Path, config: Docker, told: Told) -> None:
    name = built_name(dockerfile)
    wanted = {"t": name, "dockerfile": dockerfile.name, "rm": "1", "forcerm": "1", "networkmode": config.build_network}
    tail: list[str] = []
    failed = f"{dockerfile} was not built"
    with tempfile.TemporaryFile() as archive:
        size = _pack(dockerfile, archive)
        for said in _told_by(
            socket, f"/build?{urlencode(wanted)}", config.image_timeout_s, failed, archive, size, tail
        ):
            for line in str(said.get("stream", "")).splitlines():
                if line.strip():
                    tail[:] = [*tail, line.strip()][-TAIL:]
                    told(f"building {dockerfile}: {line.strip()}")
    told(f"built {name} of {dockerfile}")


def _told_by(
    socket: str, question: str, within_s: float, failed: str, body: IO[bytes] | None = None, size: int = 0,
    tail: list[str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield what the engine says while it works; raises `ImageUnavailable` that begins with `failed`."""
    until = time.monotonic() + within_s
    try:
        with asked(socket, "POST", question, min(SILENT_S, within_s), body, size) as answer:
            if answer.status != HTTPStatus.OK:
                raise ImageUnavailable(f"{failed}: the container engine says {answer.status}: {_said(answer)}")
            while line := answer.readline(LINE_MAX_BYTES):
                said = _object(line)
                if "error" in said:
                    log = "".join(f"\n  {text}" for text in tail or ())
                    raise ImageUnavailable(f"{failed}: {said['error']}{log}")
                if time.monotonic() > until:
                    raise ImageUnavailable(f"{failed} in {within_s:g} s (sandbox.image_timeout_s)")
                yield said
    except (OSError, http.client.HTTPException) as error:
        raise ImageUnavailable(
            f"{failed}: the container engine at {socket}: {str(error) or type(error).__name__}"
        ) from error


def _split(image: str) -> tuple[str, str]:
    """Return name and tag; what names a digest has none, what names nothing means `latest`."""
    if "@" in image:
        return image, ""
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")


def _size(said: dict[str, Any]) -> str:
    detail = said.get("progressDetail") or {}
    current, total = detail.get("current"), detail.get("total")
    return f", {current / 1e6:.0f} of {total / 1e6:.0f} MB of one" if current and total else ""


def _said(answer: http.client.HTTPResponse) -> str:
    return words_of(answer.read(ANSWER_MAX_BYTES))


def _object(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _context(dockerfile: Path) -> Iterator[tuple[Path, str]]:
    """Yield what lies in the Dockerfile's directory, in order, with its name there; raises `ImageUnavailable` if it is too much."""
    if not dockerfile.is_file():
        raise ImageUnavailable(f"{dockerfile}: no such file")
    size = count = 0
    for parent, directories, files in os.walk(dockerfile.parent):
        directories.sort()
        for name in sorted([*directories, *files]):
            path = Path(parent, name)
            count += 1
            size += path.lstat().st_size
            if count > CONTEXT_MAX_FILES or size > CONTEXT_MAX_BYTES:
                raise ImageUnavailable(
                    f"{dockerfile.parent} is too large to build of: at most {CONTEXT_MAX_FILES:,} files and {CONTEXT_MAX_BYTES:,} bytes"
                )
            yield path, str(path.relative_to(dockerfile.parent))


def _pack(dockerfile: Path, archive: IO[bytes]) -> int:
    """Write the directory as a tar; return its size in bytes."""
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, name in _context(dockerfile):
            if path.is_symlink() or path.is_file() or path.is_dir():
                tar.add(path, name, recursive=False)
    size = archive.tell()
    archive.seek(0)
    return size
