"""Whether the sandboxes that a run asks for can be had, asked before anything is started."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from gym_bus.config import SANDBOX_KEY_VARIABLES
from gym_bus.errors import BadConfig
from schemas.sandboxes import Apptainer, Enroot

if TYPE_CHECKING:
    from schemas.config import RunConfig
    from schemas.sandboxes import SandboxConfig

PACKAGES: Final = frozenset({"e2b", "opensandbox"})
WANT_KEYS: Final = frozenset({"e2b", "daytona"})


def check_sandboxes(config: RunConfig, *, has_key: bool) -> None:
    """Raise `BadConfig` for a sandbox that cannot be made here; `has_key` says whether there is a key for a remote `sandbox`."""
    for where, sandbox in _wanted(config):
        _check(where, sandbox)
        if sandbox.type in SANDBOX_KEY_VARIABLES and where != "sandbox":
            msg = f"{where}: a remote sandbox cannot be used here yet: its key has no way to it"
            raise BadConfig(msg)
        if sandbox.type in WANT_KEYS and not has_key:
            variable = SANDBOX_KEY_VARIABLES[sandbox.type]
            msg = f"{where}: {sandbox.type} needs an API key: set {variable}, or sandbox.api_key=env:NAME"
            raise BadConfig(msg)


def _wanted(config: RunConfig) -> Iterator[tuple[str, SandboxConfig]]:
    yield "sandbox", config.sandbox
    if config.checkpoints.restore_in:
        yield "checkpoints.restore_in", config.checkpoints.restore_in
    if config.grading_sandbox:
        yield "grading_sandbox", config.grading_sandbox


def _check(where: str, sandbox: SandboxConfig) -> None:
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
