"""The filter as a program of classic BPF, run by the kernel before each system call: seccomp(2), linux/filter.h, linux/seccomp.h."""

from __future__ import annotations

import errno
import struct
from functools import cache
from itertools import pairwise
from typing import Final

from providers.sandboxes.seccomp.policy import COLUMNS, NEWEST, SPECIAL, SPECIAL_NUMBERS, Machine, Special, allowed

LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
IF_ABOVE: Final = 0x25  # BPF_JMP | BPF_JGT | BPF_K
IF_FROM: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
RETURN: Final = 0x06  # BPF_RET | BPF_K
ALLOW: Final = 0x7FFF_0000
REFUSE: Final = 0x0005_0000  # with an errno in its low bits
NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16
"""Where these lie in struct seccomp_data; of an argument the low half comes first, on both machines."""
AUDIT_ARCH: Final[dict[Machine, int]] = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}

Instruction = tuple[int, int, int, int]
"""Code, how many to skip if true, how many if false, operand."""


@cache
def program_for(machine: Machine) -> bytes:
    """Return the program for a kernel on `machine`: calls made in another of its modes (32 bits, x32) do not exist."""
    column = COLUMNS[machine]
    numbers = sorted(number for both in allowed().values() if (number := both[column]) is not None)
    instructions: list[Instruction] = [
        (LOAD, 0, 0, MACHINE),
        (IF_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        (LOAD, 0, 0, NUMBER),
        (IF_ABOVE, 0, 1, NEWEST),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
    ]
    for name, special in SPECIAL.items():
        instructions += _special(SPECIAL_NUMBERS[name][column], special)
    for first, last in _ranges(numbers):
        instructions += [(IF_FROM, 0, 2, first), (IF_ABOVE, 1, 0, last), (RETURN, 0, 0, ALLOW)]
    instructions.append((RETURN, 0, 0, REFUSE | errno.EPERM))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _special(number: int, special: Special) -> list[Instruction]:
    """Return what answers the call `number` for good, and skips itself for every other."""
    body: list[Instruction] = [(LOAD, 0, 0, FIRST_ARGUMENT), (AND, 0, 0, special.mask)]
    for value in special.values:
        body += [(IF_EQUAL, 0, 1, value), (RETURN, 0, 0, ALLOW)]
    body.append((RETURN, 0, 0, REFUSE | special.otherwise))
    return [(IF_EQUAL, 0, len(body), number), *body]


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return first and last of each run of numbers that follow each other."""
    breaks = [(one, other) for one, other in pairwise(numbers) if other != one + 1]
    return list(
        zip([numbers[0], *(other for _, other in breaks)], [*(one for one, _ in breaks), numbers[-1]], strict=True)
    )
