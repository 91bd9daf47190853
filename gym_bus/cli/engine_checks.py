"""Whether containers can be made, asked before anything is started: an engine answers at its socket, and has the image."""

from __future__ import annotations

import http.client
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gym_bus.engine_http import ANSWER_MAX_BYTES, asked, words_of
from gym_bus.engine_images import ImageUnavailable, fetch, has_image, image_of
from gym_bus.engine_socket import DEFAULT_SOCKET
from gym_bus.errors import BadConfig

if TYPE_CHECKING:
    from schemas.sandboxes import Docker

ENGINE_TIMEOUT_S: Final = 10.0
SHOWN_EVERY_S: Final = 5.0
COLUMNS: Final = 100
INSTALL: Final = (
    "`scripts/setup docker` as root, or `apt-get install docker.io`; sandbox.type=bubblewrap needs no engine"
)


def check_engine(sandbox: Docker) -> None:
    """Have the image there, pulled or built if need be, and show how that goes.

    Raises `BadConfig` if no engine answers, it may not be used, or the image is not to be had, with what to do about it.
    """
    path = sandbox.socket or DEFAULT_SOCKET
    where = "sandbox.image" if sandbox.image else "sandbox.dockerfile"
    _ask(path, "/_ping")
    try:
        image = image_of(sandbox)
        if has_image(path, image):
            return
        if sandbox.image is None or sandbox.pull == "missing":
            fetch(path, sandbox, Shown())
            return
    except ImageUnavailable as error:
        raise BadConfig(f"{where}: {error}{_advice(sandbox)}") from error
    raise BadConfig(f"{where}: the container engine at {path} has no image {image}{_advice(sandbox)}")


def _advice(sandbox: Docker) -> str:
    if sandbox.image is None:
        return ""
    by_hand = f": `docker pull {sandbox.image}`, `docker load`, or `docker import`"
    return f"{by_hand} (`scripts/setup docker` makes gymbus/busybox:1)"


class Shown:
    """Shows what is told of long work: on a terminal in one line, elsewhere a line every few seconds, and the last in any case."""

    def __init__(self) -> None:
        """Show on standard error."""
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = 0.0

    def __call__(self, text: str) -> None:
        """Show `text`, which is one line."""
        is_end, now = text.startswith(("pulled", "built")), time.monotonic()
        if self._is_terminal:
            print(f"\r\x1b[2K{text[:COLUMNS]}", end="\n" if is_end else "", file=sys.stderr, flush=True)
        elif is_end or now - self._shown_at >= SHOWN_EVERY_S:
            self._shown_at = now
            print(text, file=sys.stderr, flush=True)


def _ask(path: str, question: str) -> tuple[int, str]:
    """Return an answer's status, and what it says if it is an error."""
    try:
        with asked(path, "GET", question, ENGINE_TIMEOUT_S) as answer:
            return answer.status, words_of(answer.read(ANSWER_MAX_BYTES))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise BadConfig(f"sandbox: {_absence(path)}") from error
    except PermissionError as error:
        advice = "join its group (`sudo usermod -aG docker $USER`, then log in anew)"
        raise BadConfig(f"sandbox: the container engine at {path} may not be used by this user: {advice}") from error
    except (OSError, http.client.HTTPException) as error:
        why = f"does not answer ({str(error) or type(error).__name__})"
        raise BadConfig(
            f"sandbox: what is at {path} {why}: is it a container engine? sandbox.socket names another"
        ) from error


def _absence(path: str) -> str:
    """Return what to do where no engine listens: it is missing, or it does not run."""
    if Path(path).exists() or shutil.which("dockerd") or shutil.which("podman"):
        advice = "start it (`systemctl start docker`, or `scripts/setup docker` as root), or set sandbox.socket to where it listens"
        return f"no container engine runs at {path}: {advice}"
    return f"no container engine runs at {path}, and none is installed: {INSTALL}"
