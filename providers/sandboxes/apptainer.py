"""Sandboxes of Apptainer: an image file or directory, contained, without the host's home, environment and network.

The box's user is whoever runs gym-bus. Written against the documented command line of Apptainer 1.x and tested with a stand-in for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from providers.sandboxes.base import SandboxUnavailable
from providers.sandboxes.bubblewrap_argv import PIPES_IN_BOX
from providers.sandboxes.rooms import Room
from providers.sandboxes.runtime_provider import SHELL, RuntimeProvider, host_environment, program
from schemas.sandboxes import Apptainer

ADVICE: Final = "Install Apptainer, or set sandbox.binary to where it is"
PREFIX: Final = "APPTAINERENV_"
"""What begins so in Apptainer's environment is in the box's without it."""


class ApptainerRuntime:
    """How Apptainer is told to make a box."""

    def __init__(self, config: Apptainer) -> None:
        self._config = config

    @property
    def name(self) -> str:
        """Return the configuration's type."""
        return "apptainer"

    @property
    def bounds_memory(self) -> bool:
        """Say whether Apptainer bounds the memory and the processes of a box as a whole."""
        return self._config.cgroups

    async def prepare(self, room: Room, state: Path) -> None:  # noqa: ARG002  an image is used where it is
        """Raise `SandboxUnavailable` if Apptainer or the image is missing."""
        program(self._config.binary, ADVICE)
        if not Path(self._config.image).exists():  # noqa: ASYNC240  once per box
            raise SandboxUnavailable(
                f"there is no image at {self._config.image}: `apptainer build {self._config.image} docker://…` makes one"
            )

    def command(self, room: Room, state: Path) -> list[str]:  # noqa: ARG002
        """Return the arguments that become a box: with `--no-init` the shell is the first process of its namespace."""
        config, limits = self._config, self._config.limits
        return [
            program(config.binary, ADVICE), "--quiet", "exec",
            "--containall", "--cleanenv", "--no-home", "--no-init", "--no-privs", "--no-eval",
            *(["--net", "--network", "none"] if config.network == "none" else []),
            *(["--writable-tmpfs"] if config.writable_tmpfs else []),
            *(["--memory", f"{limits.memory_mib}M", "--pids-limit", str(limits.processes)] if config.cgroups else []),
            "--bind", f"{room.work}:/box", "--bind", f"{room.pipes}:{PIPES_IN_BOX}:ro", "--pwd", "/box",
            config.image, SHELL,
        ]  # fmt: skip

    def environment(self, variables: Mapping[str, str], state: Path) -> dict[str, str]:  # noqa: ARG002
        """Return Apptainer's own environment; HOME it does not take this way, the shell sets it."""
        return host_environment() | {f"{PREFIX}{name}": value for name, value in variables.items()}

    def exported(self, variables: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002
        """Return what the shell has to set: nothing of it."""
        return {}

    async def clear(self, room: Room, state: Path) -> None:
        """Do nothing: there is nothing but the room."""


class ApptainerProvider(RuntimeProvider):
    """Makes boxes with Apptainer, their files under `work_dir`."""

    def __init__(self, config: Apptainer, work_dir: Path) -> None:
        super().__init__(ApptainerRuntime(config), config.limits, config.environment, config.ledger_path, work_dir)
