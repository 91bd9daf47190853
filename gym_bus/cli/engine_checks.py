"""Whether containers can be made, asked before anything is started: an engine answers at its socket, and has the image."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from gym_bus.engine_socket import DEFAULT_SOCKET
from gym_bus.errors import BadConfig

if TYPE_CHECKING:
    from schemas.sandboxes import Docker

ENGINE_TIMEOUT_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 4 * 1024 * 1024
SHOWN: Final = 300
INSTALL: Final = (
    "`scripts/setup docker` as root, or `apt-get install docker.io`; sandbox.type=bubblewrap needs no engine"
)


def check_engine(sandbox: Docker) -> None:
    """Raise `BadConfig` if no engine answers, it may not be used, or the image is not there, with what to do about it."""
    path = sandbox.socket or DEFAULT_SOCKET
    _ask(path, "/_ping")
    status, said = _ask(path, f"/images/{quote(sandbox.image, safe='/:@')}/json")
    if status == HTTPStatus.NOT_FOUND:
        raise BadConfig(
            f"sandbox.image: the container engine at {path} has no image {sandbox.image}: `docker pull {sandbox.image}`, "
            "`docker load`, or `docker import` (`scripts/setup docker` makes gymbus/busybox:1)"
        )
    if status != HTTPStatus.OK:
        raise BadConfig(f"sandbox.image: the container engine at {path} says {status}: {said}")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=ENGINE_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to a path instead of an address."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(ENGINE_TIMEOUT_S)
        self.sock.connect(self._path)


def _ask(path: str, question: str) -> tuple[int, str]:
    """Return an answer's status, and what it says if it is an error."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", question)
        answer = connection.getresponse()
        return answer.status, _words(answer.read(ANSWER_MAX_BYTES))
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
    finally:
        connection.close()


def _absence(path: str) -> str:
    """Return what to do where no engine listens: it is missing, or it does not run."""
    if Path(path).exists() or shutil.which("dockerd") or shutil.which("podman"):
        advice = "start it (`systemctl start docker`, or `scripts/setup docker` as root), or set sandbox.socket to where it listens"
        return f"no container engine runs at {path}: {advice}"
    return f"no container engine runs at {path}, and none is installed: {INSTALL}"


def _words(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])[:SHOWN]
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()[:SHOWN]
