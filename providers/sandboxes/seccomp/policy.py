"""What a box may ask of the kernel: what programs, compilers and debuggers need, and nothing that reaches out of its namespaces.

Allowed are the calls in `allowed.tsv`, by name and by number for each machine; numbers are those of Linux's `unistd.h`. It holds no
call that mounts, loads, traces the kernel, uses its keyring, or makes namespaces, and no io_uring, whose operations no filter sees.
Sockets are allowed of families that namespaces hold in: a socket of AF_VSOCK reaches the machine under this one from any namespace.
A call that is not in the table is refused (EPERM). One that is newer than the table does not exist (ENOSYS), and neither does clone3,
whose flags a filter cannot see: C libraries then use clone.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

Machine = Literal["x86_64", "aarch64"]


@dataclass(frozen=True, slots=True)
class Special:
    """A call whose first argument decides: what is left of it after `mask` has to be one of `values`, or the answer is `otherwise`."""

    values: tuple[int, ...]
    mask: int
    otherwise: int


NEWEST: Final = 466
"""The highest number that has been looked at."""
NEW_NAMESPACES: Final = 0x7E02_0000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
ALL_BITS: Final = 0xFFFF_FFFF
SPECIAL: Final[dict[str, Special]] = {
    "clone": Special((0,), NEW_NAMESPACES, errno.EPERM),
    "clone3": Special((), ALL_BITS, errno.ENOSYS),
    "socket": Special(
        (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16), ALL_BITS, errno.EAFNOSUPPORT
    ),  # 16: AF_NETLINK, by which programs look at their interfaces
    "personality": Special((0, 0x8, 0x2_0000, 0x2_0008, ALL_BITS), ALL_BITS, errno.EPERM),
}
SPECIAL_NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "socket": (41, 198),
    "personality": (135, 92),
}
COLUMNS: Final[dict[Machine, int]] = {"x86_64": 0, "aarch64": 1}


def allowed() -> dict[str, tuple[int | None, int | None]]:
    """Return the calls that are allowed whatever their arguments: their numbers on x86_64 and on aarch64."""
    table = files("providers.sandboxes.seccomp").joinpath("allowed.tsv").read_text("ascii").splitlines()[1:]
    rows = (line.split("\t") for line in table)
    return {name: (_number(first), _number(second)) for name, first, second in rows}


def _number(text: str) -> int | None:
    return None if text == "-" else int(text)
