"""What processes with user code ask of the kernel, as far as the supervisor has a say in it, or has to know.

A filter in the kernel passes over calls that are harmless, refuses some, and has the supervisor answer for the rest.
Only the supervisor may look into other processes, so that is refused to all others; the container's own list of allowed
calls has to let it through. A process that shares its memory with rows to come may do little without the supervisor's
noticing: only what it reads, and what is gone with itself. Everything else makes it `unusual`, and its memory is then
not used again.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import time

import kernel

_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND = 0xC050_2100, 0xC018_2101
_NOTICE = struct.Struct("=QIIiIQ6Q")
"""Which it is, the process, flags; then the call's number, architecture and place, and its arguments."""
_ANSWER = struct.Struct("=QqiI")
_CONTINUE = 1
_SET_FLAGS, _WAKE_AT_ONCE = 0x4008_2104, 1
_AUDIT_ARCH_X86_64 = 0xC000_003E
_ALLOW, _ASK, _REFUSE = 0x7FFF_0000, 0x7FC0_0000, 0x0005_0000 | errno.EPERM
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _IF_EQUAL, _IF_ANY, _RETURN = 0x20, 0x15, 0x45, 0x06
_INSTRUCTION = struct.Struct("=HBBI")

_PRCTL, _OPEN, _OPENAT = 157, 2, 257
_REFUSED = (101, 310, 311)
"""ptrace, process_vm_readv, process_vm_writev."""
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_TMPFILE & ~os.O_DIRECTORY
_HARMLESS = {
    "files that it has open, and looking at others": (
        *(0, 1, 3, 4, 5, 6, 8, 16, 17, 18, 19, 20, 21),  # read write close stat fstat lstat lseek ioctl p* *v access
        *(32, 33, 72, 77, 78, 79, 80, 89, 95),  # dup dup2 fcntl ftruncate getdents getcwd chdir readlink umask
        *(137, 138, 217, 262, 267, 269, 292, 295, 332, 436, 439),  # statfs getdents64 newfstatat readlinkat statx ...
    ),
    "waiting, pipes, sockets that it has": (
        *(7, 22, 23, 24, 34, 35, 44, 45, 46, 47, 48, 53, 219, 230),  # poll pipe select nanosleep send* recv* shutdown
        *(232, 233, 270, 271, 281, 290, 291, 293),  # epoll pselect6 ppoll eventfd2 pipe2
    ),
    "asking": (
        *(36, 39, 51, 55, 63, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110),  # get*
        *(140, 186, 201, 204, 228, 229, 318),  # gettid time sched_getaffinity clock_* getrandom
    ),
    "itself alone": (
        13,
        14,
        15,
        37,
        38,
        60,
        61,
        127,
        128,
        130,
        131,
        160,
        202,
        231,
        302,
    ),  # signals, timers, limits, exit
}


def install(*, listening: bool) -> int:
    """Puts the filter around this process and all that come of it. Gives a descriptor to listen on, or -1."""
    program = _program(listening=listening)
    code = ctypes.create_string_buffer(b"".join(_INSTRUCTION.pack(*instruction) for instruction in program))
    pointer = struct.pack("@HP", len(program), ctypes.addressof(code))
    place = ctypes.create_string_buffer(pointer)
    flags = _NEW_LISTENER if listening else 0
    descriptor = kernel.call(kernel.SECCOMP, _SET_MODE_FILTER, flags, ctypes.addressof(place))
    return descriptor if listening else -1


def _program(*, listening: bool) -> list:
    """The filter, as instructions for the kernel: a code, how far to jump if so and if not, a value."""
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_IF_EQUAL, 1, 0, _AUDIT_ARCH_X86_64),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, _NUMBER),
        *(step for number in _REFUSED for step in _when(number, [(_RETURN, 0, 0, _REFUSE)])),
    ]
    if not listening:
        return [
            *program,
            *_when(kernel.CLONE, _refuse_if(0, _IF_ANY, kernel.CLONE_PARENT)),
            *_when(
                _PRCTL, [*_load(0), (_IF_EQUAL, 0, 3, kernel.PR_SET_DUMPABLE), *_refuse_if(1, _IF_ANY, 0xFFFF_FFFF)]
            ),
            (_RETURN, 0, 0, _ALLOW),
        ]
    harmless = [number for numbers in _HARMLESS.values() for number in numbers]
    for number, flags in ((_OPEN, 1), (_OPENAT, 2)):
        program += _when(
            number, [*_load(flags), (_IF_ANY, 1, 0, _WRITING), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
        )
    program += [(_IF_EQUAL, len(harmless) - at, 0, number) for at, number in enumerate(harmless)]
    return [*program, (_RETURN, 0, 0, _ASK), (_RETURN, 0, 0, _ALLOW)]


def _when(number: int, steps: list) -> list:
    return [(_IF_EQUAL, 0, len(steps), number), *steps]


def _load(argument: int) -> list:
    """Of which the kernel looks at the lower half; the container's own list has seen to the upper one."""
    return [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument)]


def _refuse_if(argument: int, test: int, value: int) -> list:
    return [*_load(argument), (test, 0, 1, value), (_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]


def nobody(_pid: int, _call: int) -> bool:
    return False


class Notices:
    """Answers for the calls that the filter leaves to the supervisor. Without a descriptor there are none.

    `is_ours` says whether it is our own code that makes a call: only that may start siblings and let itself be held.
    `unusual` is set by what any other calls for.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.unusual = False
        self.is_ours = nobody
        if self.listens:
            with contextlib.suppress(OSError):  # as before Linux 6.6: it only makes things quicker
                fcntl.ioctl(descriptor, _SET_FLAGS, _WAKE_AT_ONCE)

    @property
    def listens(self) -> bool:
        return self._descriptor >= 0

    def poll(self, waiting, until: float) -> list:
        """Waits for something else to happen, until then at most, and answers meanwhile."""
        if not self.listens:
            return waiting.poll(max(0, until - time.monotonic()) * 1000)
        waiting.register(self._descriptor, select.POLLIN)
        while True:
            found = waiting.poll(max(0, until - time.monotonic()) * 1000)
            others = [(descriptor, events) for descriptor, events in found if descriptor != self._descriptor]
            if len(others) < len(found):
                self.answer()
            if others or time.monotonic() >= until:
                return others

    def answer(self) -> None:
        """Answers one, if its process is still there."""
        notice = bytearray(_NOTICE.size)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._descriptor, _RECEIVE, notice)
            number, pid, _, call, _, _, *arguments = _NOTICE.unpack(notice)
            ours = self.is_ours(pid, call)
            refused = _reaches_out(call, arguments) and not ours
            self.unusual = self.unusual or not ours
            answer = (0, -errno.EPERM, 0) if refused else (0, 0, _CONTINUE)
            fcntl.ioctl(self._descriptor, _SEND, _ANSWER.pack(number, *answer))


def _reaches_out(call: int, arguments: list) -> bool:
    """Whether it is one of the calls that are for the processes that start rows."""
    if call == kernel.CLONE:
        return bool(arguments[0] & kernel.CLONE_PARENT)
    return call == _PRCTL and arguments[0] & 0xFFFF_FFFF == kernel.PR_SET_DUMPABLE and bool(arguments[1])


def send(control: socket.socket, descriptor: int) -> None:
    """Hands it over, before there is any user code that could answer for itself. -1 says that there is none."""
    if descriptor < 0:
        control.send(b"-")
        return
    socket.send_fds(control, [b"+"], [descriptor])
    os.close(descriptor)


def receive(control: socket.socket) -> Notices:
    _, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    return Notices(descriptors[0] if descriptors else -1)
