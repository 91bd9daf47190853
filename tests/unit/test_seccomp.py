"""The filter of system calls: its table says what Linux says, and the program decides as the table does, on both machines."""

from __future__ import annotations

import errno
import json
import re
import struct
import subprocess
from pathlib import Path

import pytest

from providers.sandboxes.seccomp import container_profile, filter_to_read, program_for
from providers.sandboxes.seccomp.policy import COLUMNS, NEWEST, SPECIAL, SPECIAL_NUMBERS, Machine, allowed
from providers.sandboxes.seccomp.program import ALLOW, AUDIT_ARCH, REFUSE

HEADERS = Path("/usr/include/asm-generic/unistd.h")
NOT_AMONG_THEM = (
    "mount umount2 pivot_root chroot setns unshare keyctl add_key request_key bpf perf_event_open userfaultfd io_uring_setup "
    "io_uring_enter io_uring_register init_module finit_module delete_module kexec_load kexec_file_load open_by_handle_at "
    "name_to_handle_at reboot swapon acct quotactl syslog iopl ioperm clock_settime settimeofday fsopen fsmount move_mount "
    "open_tree mount_setattr pidfd_getfd kcmp lookup_dcookie move_pages nfsservctl sethostname"
)


def decide(machine: Machine, number: int, first: int = 0, arch: int | None = None) -> int:
    """Run the program as the kernel does: one pass, forwards only."""
    program = list(struct.iter_unpack("=HBBI", program_for(machine)))
    data = struct.pack("<iIQ6Q", number, AUDIT_ARCH[machine] if arch is None else arch, 0, first, *[0] * 5)
    at, held = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", data, operand)
            case 0x54:
                held &= operand
            case 0x15:
                at += if_true if held == operand else if_false
            case 0x25:
                at += if_true if held > operand else if_false
            case 0x35:
                at += if_true if held >= operand else if_false
            case 0x06:
                return operand
            case _:
                pytest.fail(f"instruction {code:#x} is not known")


@pytest.mark.parametrize("machine", list(COLUMNS))
def test_exactly_what_the_table_allows_is_allowed(machine: Machine) -> None:
    """Every number from 0 to far beyond the newest is decided as the table says."""
    column = COLUMNS[machine]
    numbers = {both[column] for both in allowed().values()}
    special = {both[column] for both in SPECIAL_NUMBERS.values()}
    assert not numbers & special
    for number in range(NEWEST + 1):
        if number not in special:
            assert decide(machine, number) == (ALLOW if number in numbers else REFUSE | errno.EPERM), number
    for number in (NEWEST + 1, 1000, 0x4000_0000, 0x4000_0001, -1):
        assert decide(machine, number) == REFUSE | errno.ENOSYS, "newer than the table, or of x32"
    for arch in (0x4000_0003, 0x4000_0028, 0):
        assert decide(machine, 1, arch=arch) == REFUSE | errno.ENOSYS, "a call of another mode"


@pytest.mark.parametrize("machine", list(COLUMNS))
def test_an_argument_decides_where_it_has_to(machine: Machine) -> None:
    """Threads and processes, not namespaces; families that namespaces hold in; the high half of an argument changes nothing."""
    number = {name: both[COLUMNS[machine]] for name, both in SPECIAL_NUMBERS.items()}
    threads, vfork = 0x3D0F00, 0x4111
    for flags in (17, threads, vfork, 0x01200011):
        assert decide(machine, number["clone"], flags) == ALLOW
    for bit in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert decide(machine, number["clone"], bit | 17) == REFUSE | errno.EPERM
    assert decide(machine, number["clone3"]) == REFUSE | errno.ENOSYS
    for family in (1, 2, 10, 16, (1 << 32) | 2):
        assert decide(machine, number["socket"], family) == ALLOW
    for family in (0, 3, 15, 17, 29, 31, 38, 40, 44, 45, (1 << 32) | 40):
        assert decide(machine, number["socket"], family) == REFUSE | errno.EAFNOSUPPORT
    assert decide(machine, number["personality"], 0xFFFFFFFF) == ALLOW
    assert decide(machine, number["personality"], 0x0040000) == REFUSE | errno.EPERM


def test_the_program_fits_the_kernel() -> None:
    """At most 4096 instructions, every jump forwards to one of them, the last one returns; and a pipe takes it in one piece."""
    for machine in COLUMNS:
        program = list(struct.iter_unpack("=HBBI", program_for(machine)))
        assert len(program) <= 4096
        assert program[-1][0] == 0x06
        for at, (code, if_true, if_false, _) in enumerate(program):
            assert code == 0x06 or at + 1 + max(if_true, if_false) < len(program)
    with filter_to_read() as descriptor, open(descriptor, "rb", closefd=False) as file:
        assert file.read() in {program_for(machine) for machine in COLUMNS}


@pytest.mark.skipif(not HEADERS.exists(), reason="no kernel headers here (linux-libc-dev) to compare the table with")
def test_numbers_are_those_of_the_kernel() -> None:
    """For each name that the headers know, on both machines."""
    found = list(Path("/usr/include").glob("*/asm/unistd_64.h"))
    if found and "x86_64" in str(found[0]):
        x86 = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR_(\w+) (\d+)", found[0].read_text())}
        assert len(x86) > 300
        table = {name: both[0] for name, both in [*allowed().items(), *SPECIAL_NUMBERS.items()] if both[0] is not None}
        wrong = {n: (x, x86.get(n)) for n, x in table.items() if x86.get(n, x) != x}
        assert not wrong
        assert {n for n, x in table.items() if n not in x86 and x < max(x86.values())} == set()
    defined = "#define __ARCH_WANT_RENAMEAT\n#define __ARCH_WANT_SET_GET_RLIMIT\n#define __ARCH_WANT_NEW_STAT\n"
    defined += "#define __ARCH_WANT_SYS_CLONE3\n#define __ARCH_WANT_MEMFD_SECRET\n#include <asm-generic/unistd.h>\n"
    text = subprocess.run(["cc", "-E", "-dM", "-"], input=defined, capture_output=True, text=True, check=True).stdout
    either = dict(re.findall(r"#define __NR3264_(\w+) (\d+)", text))
    said = {n: either.get(v.removeprefix("__NR3264_"), v) for n, v in re.findall(r"#define __NR_(\w+) (\w+)", text)}
    arm = {n: int(v) for n, v in said.items() if v.isdigit()}
    assert len(arm) > 250
    arm_table = {name: both[1] for name, both in [*allowed().items(), *SPECIAL_NUMBERS.items()] if both[1] is not None}
    assert not {n: (a, arm.get(n)) for n, a in arm_table.items() if arm.get(n, a) != a}
    assert {n for n, a in arm_table.items() if n not in arm and a < max(arm.values())} == set()


def test_what_reaches_out_of_namespaces_is_in_no_table() -> None:
    assert not set(NOT_AMONG_THEM.split()) & set(allowed())
    assert not set(SPECIAL) & set(allowed())


def test_engines_are_told_the_same() -> None:
    """The profile allows what the table allows, with the same conditions, and refuses the rest."""
    profile = json.loads(container_profile())
    assert (profile["defaultAction"], profile["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", errno.EPERM)
    [plain] = [rule for rule in profile["syscalls"] if "args" not in rule and rule["action"] == "SCMP_ACT_ALLOW"]
    assert set(plain["names"]) == set(allowed())
    conditional = [rule for rule in profile["syscalls"] if "args" in rule]
    assert {name for rule in conditional for name in rule["names"]} == {"clone", "socket", "personality"}
    [refused] = [rule for rule in profile["syscalls"] if rule["action"] != "SCMP_ACT_ALLOW"]
    assert (refused["names"], refused["errnoRet"]) == (["clone3"], errno.ENOSYS)
