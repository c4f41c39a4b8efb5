"""Answers for the calls that the filter leaves to the supervisor, and notes whether there were any it did not expect."""

import contextlib
import ctypes
import errno
import os
import select
import socket
import struct
import time

import kernel

_RECEIVE, _SEND, _SET_FLAGS = 0xC050_2100, 0xC018_2101, 0x4008_2104
_NOTICE = struct.Struct("=QIIiIQ6Q")
"""Which it is, the process, flags; then the call's number, architecture and place, and its arguments."""
_ANSWER = struct.Struct("=QqiI")
"""Which it is, the result, the error, flags."""
_GO_AHEAD = 0, 0, 1
_REFUSED = 0, -errno.EPERM, 0
_WAKE_AT_ONCE = 1


def nobody(_pid: int, _call: int) -> bool:
    return False


class Notices:
    """What the filter tells. Without a descriptor it tells nothing.

    `is_ours` says whether it is our own code that makes a call: only that may start siblings and let itself be held. A
    call of any other is `unusual`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.unusual = False
        self.is_ours = nobody
        if self.listens:
            with contextlib.suppress(OSError):  # as before Linux 6.6: it only makes things quicker
                kernel.call(kernel.IOCTL, descriptor, _SET_FLAGS, _WAKE_AT_ONCE)

    @property
    def listens(self) -> bool:
        return self._descriptor >= 0

    def poll(self, waiting, until: float) -> list:
        """Waits for something else to happen, until then at most, and answers meanwhile."""
        if not self.listens:
            return waiting.poll(max(0, until - time.monotonic()) * 1000)
        waiting.register(self._descriptor, select.POLLIN)
        while True:
            found = dict(waiting.poll(max(0, until - time.monotonic()) * 1000))
            told = found.pop(self._descriptor, 0)
            if told & select.POLLIN:
                self.answer()
            elif told:  # nobody is left that could tell anything
                waiting.unregister(self._descriptor)
            if found or time.monotonic() >= until:
                return list(found.items())

    def answer(self) -> None:
        """Answers one, if its process is still there."""
        notice = bytearray(_NOTICE.size)
        with contextlib.suppress(FileNotFoundError, InterruptedError):
            self._control(_RECEIVE, notice)
            number, pid, _, call, _, _, *arguments = _NOTICE.unpack(notice)
            ours = self.is_ours(pid, call)
            refused = _reaches_out(call, arguments) and not ours
            self.unusual = self.unusual or not ours
            self._control(_SEND, bytearray(_ANSWER.pack(number, *(_REFUSED if refused else _GO_AHEAD))))

    def _control(self, request: int, data: bytearray) -> None:
        """Not by way of the C library: not every one passes the number on as it is."""
        room = (ctypes.c_char * len(data)).from_buffer(data)
        kernel.call(kernel.IOCTL, self._descriptor, request, ctypes.addressof(room))


def _reaches_out(call: int, arguments: list) -> bool:
    """Whether it is one of the calls that are for the processes that start rows."""
    if call == kernel.CLONE:
        return bool(arguments[0] & kernel.CLONE_PARENT)
    return call == kernel.PRCTL and arguments[0] & 0xFFFF_FFFF == kernel.PR_SET_DUMPABLE and bool(arguments[1])


def send(control: socket.socket, descriptor: int) -> None:
    """Hands it over, before there is any user code that could answer for itself. -1 says that there is none."""
    if descriptor < 0:
        control.send(b"-")
        return
    socket.send_fds(control, [b"+"], [descriptor])
    os.close(descriptor)


def receive(control: socket.socket) -> Notices:
    """Takes over what was sent."""
    _, descriptors, _, _ = socket.recv_fds(control, 1, 1, socket.MSG_CMSG_CLOEXEC)
    return Notices(descriptors[0] if descriptors else -1)
