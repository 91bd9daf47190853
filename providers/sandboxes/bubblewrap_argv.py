"""The command line of one bubblewrap box: what it sees, and what it may not.

Order matters: the user is changed before bwrap starts, because a change of user clears the wish to die with the parent,
which bwrap expresses for itself and for the box.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from providers.sandboxes.rooms import Room
from schemas.sandboxes import WORKSPACE, Layout, SandboxLimits

ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/box", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}  # noqa: S108
"""All a command finds in its environment, besides PWD."""

SHELL_IN_BOX: Final = "/run/shell"
PIPES_IN_BOX: Final = "/run/io"
_TOP: Final = ("bin", "sbin", "lib", "lib64", "lib32", "libx32")


@dataclass(frozen=True, slots=True)
class Tools:
    """What boxes are made with. `shell` is a copy nobody may read (see `StandingShell`), `features` bwrap's help."""

    bwrap: str
    setpriv: str | None
    shell: Path
    features: str


def seen() -> list[tuple[Path, str]]:
    """Return what every box sees of this host, and where: its programs, and the kernel's settings."""
    tops = [f"/{name}" for name in _TOP if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]  # noqa: PTH112, PTH114
    return [(Path(path), path) for path in ("/usr", *tops, "/etc/alternatives", "/proc/sys") if os.path.isdir(path)]  # noqa: PTH112


def argv(
    tools: Tools,
    room: Room,
    limits: SandboxLimits,
    shown: Sequence[tuple[Path, str]],
    devices: Sequence[Path] = (),
    layout: Layout = Layout(),  # noqa: B008  frozen
) -> list[str]:
    """Return the command that becomes the box `room`, with the standing shell as its first process.

    `shown` is what is shown where, `devices` take the place of this host's own.
    """
    drop = (
        [tools.setpriv, f"--reuid={room.uid}", f"--regid={room.uid}", "--clear-groups", "--"] if tools.setpriv else []
    )
    size = ["--size", str(limits.memory_mib * 1024 * 1024)] if "--size" in tools.features else []
    no_userns = ["--disable-userns"] if "--disable-userns" in tools.features else []
    return [
        *drop, tools.bwrap,
        "--unshare-all", "--unshare-user", *no_userns, "--uid", "1000", "--gid", "1000", "--hostname", "box",
        "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL",
        *_links(),
        "--proc", "/proc", "--dev", "/dev",
        *(part for node in devices for part in ("--dev-bind", str(node), f"/dev/{node.name}")),
        *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev", *size, "--tmpfs", "/tmp",  # noqa: S108  in the box
        "--bind", str(room.work), "/box", "--ro-bind", str(room.pipes), PIPES_IN_BOX,
        "--ro-bind", str(tools.shell), SHELL_IN_BOX,
        *(part for at in layout.scratch for part in (*size, "--tmpfs", at)),
        *(("--bind", str(room.work), layout.workspace) if layout.workspace else ()),
        *(part for source, at in shown for part in ("--ro-bind", str(source), at)),
        "--remount-ro", "/", "--chdir", layout.workspace or WORKSPACE, "--clearenv",
        *(part for name, value in {**ENVIRONMENT, **layout.environment}.items() for part in ("--setenv", name, value)),
        SHELL_IN_BOX,
    ]  # fmt: skip


def with_filter(command: list[str], descriptor: int) -> list[str]:
    """Return a box's command line with the filter of system calls that bwrap reads from `descriptor`; it holds for all that follows."""
    return [*command[:-1], "--seccomp", str(descriptor), command[-1]]


def _links() -> list[str]:
    """Return how /bin, /lib and their like appear where the host has them as links into /usr."""
    names = [name for name in _TOP if os.path.islink(f"/{name}")]  # noqa: PTH114  six times per box
    return [part for name in names for part in ("--symlink", os.readlink(f"/{name}"), f"/{name}")]  # noqa: PTH115
