"""The filter of system calls that is around user code, inside the one that the engine puts around the container.

Only the supervisor may look into other processes. So the engine's list has to allow it, and this filter refuses it to all
others, before any user code is there.

It also has the supervisor answer for every call that is not known to be harmless. A row that shares its memory with rows
to come may read, and change what is gone with its own process: signals, timers, limits, and descriptors, which it shares
with nobody that outlives it. Everything else, as what changes the map of its memory, starts a thread, opens a file to write to it or sends a signal, is told.
"""

import contextlib
import ctypes
import errno
import os
import struct

import kernel

_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
_X86_64 = 0xC000_003E
_ALLOW, _ASK, _REFUSE = 0x7FFF_0000, 0x7FC0_0000, 0x0005_0000 | errno.EPERM
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _IF_EQUAL, _IF_ANY, _RETURN = 0x20, 0x15, 0x45, 0x06
_INSTRUCTION = struct.Struct("=HBBI")

_OPEN, _OPENAT = 2, 257
_CLONE3 = 435
"""On every machine."""
_LACKING = 0x0005_0000 | errno.ENOSYS
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_ALL = 0xFFFF_FFFF
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_TMPFILE & ~os.O_DIRECTORY
# fmt: off
_REFUSED = {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311}
_HARMLESS = {
    # Descriptors that it has, and looking at files
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "ioctl": 16, "pread64": 17,
    "pwrite64": 18, "readv": 19, "writev": 20, "access": 21, "dup": 32, "dup2": 33, "fcntl": 72, "ftruncate": 77,
    "getdents": 78, "getcwd": 79, "chdir": 80, "readlink": 89, "umask": 95, "statfs": 137, "fstatfs": 138,
    "getdents64": 217, "newfstatat": 262, "readlinkat": 267, "faccessat": 269, "dup3": 292, "preadv": 295, "statx": 332,
    "close_range": 436, "faccessat2": 439,
    # Waiting, pipes, sockets that it has
    "poll": 7, "pipe": 22, "select": 23, "sched_yield": 24, "pause": 34, "nanosleep": 35, "sendto": 44, "recvfrom": 45,
    "sendmsg": 46, "recvmsg": 47, "shutdown": 48, "socketpair": 53, "restart_syscall": 219, "clock_nanosleep": 230,
    "epoll_wait": 232, "epoll_ctl": 233, "pselect6": 270, "ppoll": 271, "epoll_pwait": 281, "eventfd2": 290,
    "epoll_create1": 291, "pipe2": 293,
    # Asking
    "getitimer": 36, "getpid": 39, "getsockname": 51, "getsockopt": 55, "uname": 63, "gettimeofday": 96, "getrlimit": 97,
    "getrusage": 98, "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
    "getppid": 110, "rt_sigpending": 127, "getpriority": 140, "gettid": 186, "time": 201, "sched_getaffinity": 204,
    "clock_gettime": 228, "clock_getres": 229, "getrandom": 318,
    # Its own process alone; of `prlimit64` the engine's list allows no other
    "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "alarm": 37, "setitimer": 38, "exit": 60, "wait4": 61,
    "setsid": 112, "rt_sigtimedwait": 128, "rt_sigsuspend": 130, "sigaltstack": 131, "setrlimit": 160, "futex": 202,
    "exit_group": 231, "prlimit64": 302,
}
# fmt: on


def install() -> int:
    """Puts the filter around this process and all that come of it. Gives where to listen, or -1 if that cannot be done."""
    for flags in (
        _NEW_LISTENER | _WAIT_KILLABLE,
        _NEW_LISTENER,
    ):  # the first spares code with timers some interruptions
        with contextlib.suppress(OSError):  # the kernel does not know it, or somebody listens already
            return _install(_telling(), flags)
    _install(_silent(), 0)
    return -1


def lack_clone3() -> None:
    """Has this process, and all that come of it, be told that `clone3` is missing, so that the C library uses `clone`.

    That is what the engine's list says, but gVisor says instead that it is not allowed, and then nothing is used.
    """
    lacking = [(_LOAD, 0, 0, _NUMBER), *_when(_CLONE3, [_returns(_LACKING)]), _returns(_ALLOW)]
    _code, header = _prepared(lacking)
    kernel.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))


def _install(program: list, flags: int) -> int:
    _code, header = _prepared(program)
    return kernel.call(kernel.SECCOMP, _SET_MODE_FILTER, flags, ctypes.addressof(header))


def _prepared(program: list) -> tuple:
    """The program as the kernel reads it, and what tells it where that is; both must live until it has."""
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    return code, ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(code)))


def _telling() -> list:
    """Instructions for the kernel: a code, how far to jump if so and if not, a value."""
    harmless = [(_IF_EQUAL, len(_HARMLESS) - at, 0, number) for at, number in enumerate(_HARMLESS.values())]
    return [
        *_start(),
        *_when(_OPEN, _unless(1, _WRITING, _ASK)),
        *_when(_OPENAT, _unless(2, _WRITING, _ASK)),
        *_when(kernel.PRCTL, [_argument(0), *_when(kernel.PR_SET_DUMPABLE, _unless(1, _ALL, _ASK)), _returns(_ASK)]),
        *harmless,
        _returns(_ASK),
        _returns(_ALLOW),
    ]


def _silent() -> list:
    """Where nobody listens, nothing is asked, and what only our own code may do is refused to all."""
    shutting = _when(kernel.PR_SET_DUMPABLE, _unless(1, _ALL, _REFUSE))
    return [
        *_start(),
        *_when(kernel.CLONE, _unless(0, kernel.CLONE_PARENT, _REFUSE)),
        *_when(kernel.PRCTL, [_argument(0), *shutting, _returns(_ALLOW)]),
        _returns(_ALLOW),
    ]


def _start() -> list:
    """Leaves the call's number to be compared."""
    known = [(_LOAD, 0, 0, _ARCHITECTURE), (_IF_EQUAL, 1, 0, _X86_64), _returns(_REFUSE), (_LOAD, 0, 0, _NUMBER)]
    return [*known, *(step for number in _REFUSED.values() for step in _when(number, [_returns(_REFUSE)]))]


def _when(value: int, steps: list) -> list:
    return [(_IF_EQUAL, 0, len(steps), value), *steps]


def _unless(index: int, bits: int, action: int) -> list:
    """Allows the call, unless the argument has any of these bits."""
    return [_argument(index), (_IF_ANY, 1, 0, bits), _returns(_ALLOW), _returns(action)]


def _argument(index: int) -> tuple:
    """Its lower half, which is what the kernel looks at."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _returns(action: int) -> tuple:
    return (_RETURN, 0, 0, action)
