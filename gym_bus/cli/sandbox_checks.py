"""Whether the sandboxes that a run asks for can be had, asked before anything is started."""

from __future__ import annotations

import shutil
from collections.abc import Container
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gym_bus.config_sandboxes import KEY_VARIABLES, wanted
from gym_bus.errors import BadConfig
from gym_bus.shared_directories import NotShown, marked
from schemas.sandboxes import Apptainer, Bubblewrap, Docker, Enroot

if TYPE_CHECKING:
    from schemas.config import RunConfig
    from schemas.sandboxes import SandboxConfig

PACKAGES: Final = frozenset({"e2b", "opensandbox"})
WANT_KEYS: Final = frozenset({"e2b", "daytona"})


def check_sandboxes(config: RunConfig, *, have_keys: Container[str], is_here: bool) -> None:
    """Raise `BadConfig` for a sandbox that cannot be made here; `have_keys` are the places of remote ones for which there is a key.

    The directories that it is shown are looked at if all sandboxes are made on this host (`is_here`).
    """
    for where, sandbox in wanted(config):
        check_sandbox(where, sandbox)
        if is_here and isinstance(sandbox, Bubblewrap | Docker):
            _check_shared(where, sandbox)
        if sandbox.type in WANT_KEYS and where not in have_keys:
            variable = KEY_VARIABLES[sandbox.type]
            msg = f"{where}: {sandbox.type} needs an API key: set {variable}, or {where}.api_key=env:NAME"
            raise BadConfig(msg)


def check_sandbox(where: str, sandbox: SandboxConfig) -> None:
    """Raise `BadConfig` for a sandbox that cannot be made here, named by its place `where`; a container's image is pulled or built."""
    if sandbox.type == "bubblewrap" and shutil.which("bwrap") is None:
        msg = (
            f"{where}: bubblewrap is not installed (no `bwrap` on PATH): `apt-get install bubblewrap`, "
            "or agent.enable_tools=false, or --unsafe-local for tasks you trust"
        )
        raise BadConfig(msg)
    if sandbox.type == "docker":
        from gym_bus.cli.engine_checks import check_engine  # noqa: PLC0415  only for containers

        try:
            check_engine(sandbox)
        except BadConfig as error:
            raise BadConfig(str(error).replace("sandbox", where, 1) if where != "sandbox" else str(error)) from error
    if isinstance(sandbox, Apptainer | Enroot) and shutil.which(sandbox.binary) is None:
        msg = f"{where}: there is no program {sandbox.binary!r} on PATH: install {sandbox.type}, or set {where}.binary to where it is"
        raise BadConfig(msg)
    if sandbox.type in PACKAGES and find_spec(sandbox.type) is None:
        msg = f"{where}: {sandbox.type} needs a package that is not installed: pip install 'gym-bus[cloud]'"
        raise BadConfig(msg)


def _check_shared(where: str, sandbox: Bubblewrap | Docker) -> None:
    """Raise `BadConfig` for a directory that says nowhere that it may be shown."""
    for directory in sandbox.shared:
        try:
            marked(Path(directory.source))
        except NotShown as error:
            msg = f"{where}.shared: {error}"
            raise BadConfig(msg) from error
