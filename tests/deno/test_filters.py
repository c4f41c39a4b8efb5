"""The filter of system calls on every machine that it is written for, also on those that the tests do not run on."""

import errno
import struct

import pytest

from evalcell_sandboxes.deno.confinement import filters

PID = 4711
ALLOW, KILL = 0x7FFF_0000, 0x8000_0000
MACHINES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
I386 = 0x4000_0003
THREAD = 0x3D_0F00
"""As the C library starts one."""


def decide(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """Runs the filter as the kernel would, and gives what it returns."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number, architecture or MACHINES[machine], 0, *padded)
    program, at, held = filters.program(machine, PID), 0, 0
    while True:
        code, if_so, if_not, value = program[at]
        at += 1
        match code:
            case 0x20:
                (held,) = struct.unpack_from("<I", data, value)
            case 0x54:
                held &= value
            case 0x06:
                return value
            case 0x15:
                at += if_so if held == value else if_not
            case 0x25:
                at += if_so if held > value else if_not
            case 0x45:
                at += if_so if held & value else if_not
            case _:
                raise AssertionError(code)


def refused(error: int) -> int:
    return 0x0005_0000 | error


NO, LACKING = refused(errno.EPERM), refused(errno.ENOSYS)
CASES = [
    # what, its numbers, its arguments, the answer
    ("read", (0, 63), (0,), ALLOW),
    ("futex", (202, 98), (), ALLOW),
    ("execve", (59, 221), (1,), ALLOW),
    ("open to read", (257, 56), (0, 1, 0o2000000), ALLOW),
    ("open to write", (257, 56), (0, 1, 1), refused(errno.EACCES)),
    ("open to read and write", (257, 56), (0, 1, 2), refused(errno.EACCES)),
    ("create", (257, 56), (0, 1, 0o100), refused(errno.EACCES)),
    ("truncate", (257, 56), (0, 1, 0o1000), refused(errno.EACCES)),
    ("open without a name", (257, 56), (0, 1, 0o20000000), refused(errno.EACCES)),
    ("openat2", (437, 437), (), LACKING),
    ("thread", (56, 220), (THREAD,), ALLOW),
    ("thread in a new namespace", (56, 220), (THREAD | 0x4000_0000,), NO),
    ("process", (56, 220), (17,), NO),
    ("process with our memory", (56, 220), (0x4111,), NO),
    ("clone3", (435, 435), (), LACKING),
    ("private memory", (9, 222), (0, 4096, 7, 0x22), ALLOW),
    ("shared memory", (9, 222), (0, 4096, 3, 0x21), NO),
    ("own limits", (302, 261), (0, 7, 0, 1), ALLOW),
    ("own limits, by number", (302, 261), (PID, 7, 0, 1), ALLOW),
    ("own limits, new", (302, 261), (0, 7, 1, 0), NO),
    ("own limits, new, far up", (302, 261), (0, 7, 1 << 32, 0), NO),
    ("others' limits", (302, 261), (PID + 1, 7, 0, 1), NO),
    ("signal to itself", (62, 129), (PID, 6), ALLOW),
    ("signal to another", (62, 129), (PID + 1, 9), NO),
    ("signal to all", (62, 129), (2**64 - 1, 9), NO),
    ("signal to its thread", (234, 131), (PID, PID + 1, 6), ALLOW),
    ("signal to another's thread", (234, 131), (PID + 1, PID + 1, 6), NO),
    ("pair of streams", (53, 199), (1, 0o2004001), ALLOW),
    ("pair for datagrams", (53, 199), (1, 2), NO),
    ("pair of another family", (53, 199), (2, 1), NO),
    ("send", (44, 206), (3, 1, 1, 0, 0, 0), ALLOW),
    ("send to an address", (44, 206), (3, 1, 1, 0, 1 << 40, 16), NO),
    ("name of a thread", (157, 167), (15,), ALLOW),
    ("no death with the starter", (157, 167), (1,), NO),
    ("terminal or not", (16, 29), (0, 0x5401), ALLOW),
    ("typing for somebody", (16, 29), (0, 0x5412), NO),
    ("copy of a descriptor", (72, 25), (0, 1030), ALLOW),
    ("owner of a descriptor", (72, 25), (0, 8, 1), NO),
    ("socket", (41, 198), (2, 1), NO),
    ("ptrace", (101, 117), (), NO),
    ("process_vm_readv", (310, 270), (), NO),
    ("unshare", (272, 97), (), NO),
    ("mount", (165, 40), (), NO),
    ("bpf", (321, 280), (), NO),
    ("chmod", (268, 53), (), NO),
    ("io_uring_setup", (425, 425), (), NO),
    ("pidfd_send_signal", (424, 424), (), NO),
    ("newer than all that we know", (463, 463), (), LACKING),
]


@pytest.mark.parametrize("column", [0, 1], ids=MACHINES)
@pytest.mark.parametrize(
    ("numbers", "arguments", "answer"), [pytest.param(*c[1:], id=c[0].replace(" ", "-")) for c in CASES]
)
def test_filter_decides(numbers, arguments, answer, column):
    assert decide(list(MACHINES)[column], numbers[column], *arguments) == answer


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_of_another_machine_are_death(machine):
    assert decide(machine, 0, architecture=I386) == KILL


def test_numbers_of_x32_are_unknown():
    assert decide("x86_64", 0x4000_0000) == LACKING


@pytest.mark.parametrize("machine", MACHINES)
def test_jumps_are_as_short_as_the_kernel_can_count(machine):
    assert all(max(if_so, if_not) < 256 for _, if_so, if_not, _ in filters.program(machine, PID))
