"""Calls of the kernel that Python has no names for: holding another process still, and its memory.

The numbers are those of x86_64. On other machines nothing here is called.
"""

import array
import ctypes
import os
import platform
import signal

SUPPORTED = platform.machine() == "x86_64"

IOCTL, CLONE, PRCTL, SECCOMP = 16, 56, 157, 317
CLONE_VM, CLONE_VFORK, CLONE_PARENT = 0x100, 0x4000, 0x8000
PR_SET_DUMPABLE, PR_SET_THP_DISABLE = 4, 41

_SEIZE, _CONTINUE, _TO_CALL, _DETACH, _SET_OPTIONS, _EVENT_MESSAGE = 0x4206, 7, 24, 17, 0x4200, 0x4201
_GET_REGISTERS, _SET_REGISTERS = 12, 13
MARK_CALLS, TRACE_VFORK, TRACE_VFORK_DONE, EXIT_KILL = 0x1, 0x4, 0x20, 0x10_0000
VFORK_STOP, VFORK_DONE_STOP, FIRST_STOP = (signal.SIGTRAP | event << 8 for event in (2, 5, 128))
CALL_STOP = signal.SIGTRAP | 0x80
_RAX, _ORIGINAL_RAX, _RIP, _REGISTERS = 10, 15, 16, 27
_ARGUMENTS = 14, 13, 12, 7, 9, 8
_CALL_INSTRUCTION_BYTES = 2

_libc = ctypes.CDLL(None, use_errno=True)
_holding_interpreter = ctypes.PyDLL(None, use_errno=True)
"""Calls through this keep the lock of the interpreter, so that nothing of it runs between them and what follows."""
_holding_interpreter.syscall.restype = _libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = (ctypes.c_long,) * 2 + (ctypes.c_void_p,) * 2
_libc.prctl.argtypes = (ctypes.c_int,) + (ctypes.c_ulong,) * 4
for _transfer in (_libc.process_vm_readv, _libc.process_vm_writev):
    _transfer.argtypes = (ctypes.c_int, *(ctypes.c_void_p, ctypes.c_ulong) * 2, ctypes.c_ulong)
    _transfer.restype = ctypes.c_ssize_t


def call(*numbers: int) -> int:
    """Makes any call; the first number says which."""
    return _checked(_holding_interpreter.syscall(*map(ctypes.c_long, numbers)))


def clone(flags: int) -> int:
    """Starts a process with these flags, which goes on here with 0, as after a fork."""
    return call(CLONE, flags | signal.SIGCHLD, 0, 0, 0, 0)


def prctl(what: int, value: int, other: int = 0) -> None:
    _checked(_libc.prctl(what, value, other, 0, 0))


def seize(pid: int, options: int) -> None:
    _ptrace(_SEIZE, pid, options)


def set_options(pid: int, options: int) -> None:
    _ptrace(_SET_OPTIONS, pid, options)


def go_on(pid: int) -> None:
    _ptrace(_CONTINUE, pid)


def go_to_call(pid: int) -> None:
    """To where it enters the next call, or to where it leaves the one it is in."""
    _ptrace(_TO_CALL, pid)


def detach(pid: int) -> None:
    _ptrace(_DETACH, pid)


def event_process(pid: int) -> int:
    """The process that the event is about at which this one was stopped."""
    message = ctypes.c_ulong()
    _ptrace(_EVENT_MESSAGE, pid, ctypes.addressof(message))
    return message.value


def registers(pid: int) -> array.array:
    """Those of a process that is stopped."""
    found = array.array("Q", bytes(8 * _REGISTERS))
    _ptrace(_GET_REGISTERS, pid, found.buffer_info()[0])
    return found


def make_call(pid: int, before: array.array, number: int, *arguments: int) -> None:
    """Sets the registers of a process so that it makes a call next, where it made the one it had `before` in."""
    changed = array.array("Q", before)
    changed[_RIP] -= _CALL_INSTRUCTION_BYTES
    changed[_RAX], changed[_ORIGINAL_RAX] = number, 2**64 - 1
    for register, argument in zip(_ARGUMENTS, arguments, strict=False):
        changed[register] = argument
    _ptrace(_SET_REGISTERS, pid, changed.buffer_info()[0])


def call_result(pid: int) -> int:
    return registers(pid)[_RAX]


def read_memory(pid: int, here: array.array, there: array.array) -> int:
    """Copies between places, which are pairs of an address and a size. Gives how many bytes were copied."""
    return _copy(_libc.process_vm_readv, pid, here, there)


def write_memory(pid: int, here: array.array, there: array.array) -> int:
    return _copy(_libc.process_vm_writev, pid, here, there)


def _copy(copy, pid: int, here: array.array, there: array.array) -> int:
    (ours, _), (theirs, _) = here.buffer_info(), there.buffer_info()
    return _checked(copy(pid, ours, len(here) // 2, theirs, len(there) // 2, 0))


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    _checked(_libc.ptrace(request, pid, None, data))


def _checked(result: int) -> int:
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
