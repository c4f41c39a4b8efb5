"""The filter of system calls: what is not on its list is refused.

A list of what is allowed, not of what is refused: the kernel grows calls that nobody here knows of (io_uring, the new
mounts), and those are the ones with holes in them. That a list could be too short for another Deno or another C library
is met in three ways. It holds whole families of harmless calls, and not only those that were seen. A call that is newer
than the list is answered as an old kernel would answer it, ENOSYS, for which every C library has another way. And what
is refused gets EPERM and not death, which Deno takes for one more thing that it may not do.

`execve` is allowed, since the filter is there before Deno is. No check on the pointer to the path could tell our call
from an attacker's, who can put any text at any address. But he has native code already, and executing something gives
him no more: the new program has this filter, these limits and no capability, and Landlock has it be Deno or the loader.
"""

import ctypes
import errno
import os
import struct

from . import kernel

_ALLOW, _KILL = 0x7FFF_0000, 0x8000_0000
_ERRNO = 0x0005_0000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _IF_EQUAL, _IF_ABOVE, _IF_ANY, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_INSTRUCTION = struct.Struct("=HBBI")
_ALL = 0xFFFF_FFFF

Steps = list[tuple[int, int, int, int]]
"""Instructions for the kernel: a code, how far to jump if so and if not, a value."""

_MACHINES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
"""How the kernel names each, and which of the numbers below are its own."""
_NEWEST = 462
"""`mseal`, of Linux 6.10. Numbers are the same on all machines from 424 on."""

# fmt: off
_HARMLESS: dict[str, tuple[int | None, int | None]] = {
    # Descriptors that it has, and looking at files. To open one to write to it is refused below, so none of them can
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "close": (3, 57),
    "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "lseek": (8, 62),
    "fstat": (5, 80), "newfstatat": (262, 79), "stat": (4, None), "lstat": (6, None), "statx": (332, 291),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "getdents64": (217, 61), "getcwd": (79, 17), "recvfrom": (45, 207), "shutdown": (48, 210),
    # Waiting
    "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "eventfd2": (290, 19), "pipe2": (293, 59), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87), "futex": (202, 98), "futex_waitv": (449, 449), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "sched_yield": (24, 124), "restart_syscall": (219, 128),
    # Memory of its own. No `memfd_create`, whose memory counts to nobody's size where it is not mapped
    "munmap": (11, 215), "mprotect": (10, 226), "pkey_mprotect": (329, 288), "pkey_alloc": (330, 289),
    "pkey_free": (331, 290), "mremap": (25, 216), "madvise": (28, 233), "brk": (12, 214), "membarrier": (324, 283),
    "mseal": (462, 462),
    # Threads and signals of its own
    "arch_prctl": (158, None), "set_tid_address": (218, 96), "set_robust_list": (273, 99), "rseq": (334, 293),
    "gettid": (186, 178), "exit": (60, 93), "exit_group": (231, 94), "sigaltstack": (131, 132),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137),
    # Asking
    "getpid": (39, 172), "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
    "getegid": (108, 177), "getresuid": (118, 148), "getresgid": (120, 150), "uname": (63, 160), "sysinfo": (99, 179),
    "getrusage": (98, 165), "times": (100, 153), "getrlimit": (97, 163), "time": (201, None),
    "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114), "getrandom": (318, 278),
    "getcpu": (309, 168), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "getpriority": (140, 141),
    # See above
    "execve": (59, 221),
}
_LOOKED_INTO: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None), "openat": (257, 56), "mmap": (9, 222), "clone": (56, 220), "prctl": (157, 167),
    "prlimit64": (302, 261), "ioctl": (16, 29), "fcntl": (72, 25), "kill": (62, 129), "tgkill": (234, 131),
    "socketpair": (53, 199), "sendto": (44, 206),
}
_LACKING: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
"""Their arguments lie in memory, where no filter can look: with ENOSYS, the C library takes the older call."""
# fmt: on

_NEITHER_READ_NOR_TEMPORARY = 0o2000_0003  # O_ACCMODE and __O_TMPFILE, the same on both
_WRITING = _NEITHER_READ_NOR_TEMPORARY | os.O_CREAT | os.O_TRUNC
_MAP_SHARED = 1
_THREAD = kernel.CLONE_VM | kernel.CLONE_SIGHAND | kernel.CLONE_THREAD
_NEW_NAMESPACES = 0x7E02_0000
_NAMING = (kernel.PR_SET_NAME, kernel.PR_GET_NAME, kernel.PR_SET_VMA)
_TERMINAL_OR_NOT, _NOT_BLOCKING, _HOW_MUCH, _CLOSE_ON_EXEC, _NOT_CLOSE_ON_EXEC = 0x5401, 0x5421, 0x541B, 0x5451, 0x5450
_IOCTLS = (_TERMINAL_OR_NOT, _NOT_BLOCKING, _HOW_MUCH, _CLOSE_ON_EXEC, _NOT_CLOSE_ON_EXEC)
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)
"""Copies, flags and locks. Not F_SETOWN, which has the kernel send a signal of one's choice to whom one wants, and not
F_SETPIPE_SZ, by which a pipe holds a megabyte that counts to nobody's size."""
_AF_UNIX, _SOCK_STREAM, _SOCK_KIND = 1, 1, 0xF


def supported(machine: str) -> bool:
    """Whether this kind of machine is one whose calls we know by number."""
    return machine in _MACHINES


def install(machine: str) -> None:
    """Puts the filter around this process, for good. It must not be able to gain privileges any more."""
    code = b"".join(_INSTRUCTION.pack(*step) for step in program(machine, os.getpid()))
    held = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(struct.pack("@HP", len(code) // _INSTRUCTION.size, ctypes.addressof(held)))
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, ctypes.addressof(header))


def program(machine: str, pid: int) -> Steps:
    """The filter for a process on such a machine."""
    architecture, column = _MACHINES[machine]
    harmless = [numbers[column] for numbers in _HARMLESS.values() if numbers[column] is not None]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, architecture),
        _returns(_KILL),  # another machine's numbers mean other calls; nothing honest makes them
        (_LOAD, 0, 0, _NUMBER),
        *(step for name, steps in _looks(pid).items() for step in _when(_LOOKED_INTO[name][column], steps)),
        *(step for numbers in _LACKING.values() for step in _when(numbers[column], [_refuses(errno.ENOSYS)])),
        # Also the calls of x32 are above the newest one
        (_IF_ABOVE, 0, 1, _NEWEST),
        _refuses(errno.ENOSYS),
        *((_IF_EQUAL, len(harmless) - at, 0, number) for at, number in enumerate(harmless) if number is not None),
        _refuses(errno.EPERM),
        _returns(_ALLOW),
    ]


def _looks(pid: int) -> dict[str, Steps]:
    """What decides about each call that is only harmless with some arguments.

    A file opened to be written to is refused here again, for kernels without Landlock. `sendto` with an address could
    reach a socket that has a name; `socketpair` gives a datagram socket only to whom asks for one, and that has a
    use for addresses. Shared memory counts to the process's size only while it is mapped. Limits and signals: those of
    itself alone, and limits only to look.
    """
    return {
        "open": [_argument(1), *_unless_any(_WRITING, errno.EACCES)],
        "openat": [_argument(2), *_unless_any(_WRITING, errno.EACCES)],
        "mmap": [_argument(3), *_unless_any(_MAP_SHARED, errno.EPERM)],
        "clone": [_argument(0), (_AND, 0, 0, _THREAD | _NEW_NAMESPACES), *_if_one_of(_THREAD)],  # no process
        "prctl": [_argument(0), *_if_one_of(*_NAMING)],
        "prlimit64": [*_if_nothing(2), _argument(0), *_if_one_of(0, pid)],
        "ioctl": [_argument(1), *_if_one_of(*_IOCTLS)],
        "fcntl": [_argument(1), *_if_one_of(*_FCNTLS)],
        "kill": [_argument(0), *_if_one_of(pid)],
        "tgkill": [_argument(0), *_if_one_of(pid)],
        "socketpair": [
            *(_argument(0), (_IF_EQUAL, 1, 0, _AF_UNIX), _refuses(errno.EPERM)),
            *(_argument(1), (_AND, 0, 0, _SOCK_KIND), *_if_one_of(_SOCK_STREAM)),
        ],
        "sendto": [*_if_nothing(4), _returns(_ALLOW)],
    }


def _when(number: int | None, steps: Steps) -> Steps:
    return [] if number is None else [(_IF_EQUAL, 0, len(steps), number), *steps]


def _unless_any(bits: int, refusal: int) -> Steps:
    """Allows the call, unless what is loaded has any of these bits."""
    return [(_IF_ANY, 0, 1, bits), _refuses(refusal), _returns(_ALLOW)]


def _if_one_of(*values: int) -> Steps:
    """Allows the call if what is loaded is one of these."""
    equal: Steps = [(_IF_EQUAL, len(values) - at, 0, value) for at, value in enumerate(values)]
    return [*equal, _refuses(errno.EPERM), _returns(_ALLOW)]


def _if_nothing(index: int) -> Steps:
    """Refuses the call if this argument, which is a pointer, is one to something."""
    upper = (_LOAD, 0, 0, _ARGUMENTS + 8 * index + 4)
    refused: Steps = [(_IF_ANY, 0, 1, _ALL), _refuses(errno.EPERM)]
    return [_argument(index), *refused, upper, *refused]


def _argument(index: int) -> tuple[int, int, int, int]:
    """Its lower half, which is what the kernel looks at of a number."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _refuses(error: int) -> tuple[int, int, int, int]:
    return _returns(_ERRNO | error)


def _returns(action: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, action)
