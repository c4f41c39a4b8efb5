"""Calls of the kernel that Python has no names for, for a process that gives up what it may do."""

import ctypes
import os
import struct

CLONE_VM, CLONE_SIGHAND, CLONE_THREAD = 0x100, 0x800, 0x1_0000
CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x400_0000, 0x800_0000, 0x1000_0000, 0x4000_0000
PR_SET_PDEATHSIG, PR_SET_NAME, PR_GET_NAME = 1, 15, 16
PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 22, 23, 24, 38, 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PR_SET_VMA = 0x5356_4D41
SECCOMP_MODE_FILTER = 2
CAP_SETPCAP = 8
_CAPABILITIES_VERSION = 0x2008_0522
_CAPABILITIES = struct.Struct("=6I")  # effective, permitted and inheritable of the lower 32, and of the upper

_libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: "int | bytes | None") -> int:
    """Makes a call that the C library has no name for either.

    Raises:
        OSError: As the kernel says.
    """
    passed = [ctypes.c_long(given) if isinstance(given, int) else given for given in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *passed))


def prctl(what: int, value: int, other: int = 0) -> int:
    """Changes something about this process, or asks."""
    return _checked(_libc.prctl(what, *map(ctypes.c_ulong, (value, other, 0, 0))))


def unshare(flags: int) -> None:
    """Has this process go on in new namespaces."""
    _checked(_libc.unshare(flags))


def set_host_name(name: bytes) -> None:
    """Names the machine, in the namespace of this process."""
    _checked(_libc.sethostname(name, ctypes.c_size_t(len(name))))


def may(capability: int) -> bool:
    """Whether this process has it in effect, if it is one of the first 32."""
    found = ctypes.create_string_buffer(_CAPABILITIES.size)
    _checked(_libc.capget(_capabilities_header(), found))
    return bool(_CAPABILITIES.unpack(found.raw)[0] >> capability & 1)


def drop_capabilities() -> None:
    """Leaves this process without any. What it may get back by executing something is another matter."""
    _checked(_libc.capset(_capabilities_header(), bytes(_CAPABILITIES.size)))


def _capabilities_header() -> bytes:
    return struct.pack("=Ii", _CAPABILITIES_VERSION, 0)


def _checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
