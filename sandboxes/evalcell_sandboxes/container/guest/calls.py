"""One thing that a process was asked to do, as the supervisor sees it: a socket to it, and the files it prints to."""

import array
import os
import select
import socket
import time

import prints
import scratch
import wire

_chunk = memoryview(bytearray(1 << 16))  # kept: a new one for each call would be mapped and unmapped by the kernel


class Call:
    """Holds the socket over which the arguments go and records come. What comes is hostile, and bounded."""

    def __init__(self, command: bytes, control: socket.socket, limits: dict) -> None:
        self._ours, theirs = socket.socketpair()
        self._most_bytes = limits["record_bytes"]
        self._limits = limits["stdout_bytes"], limits["stderr_bytes"]
        self._prints = []
        self._unsent = []
        self._last = False
        self._pending = bytearray()
        self.began = time.monotonic()
        with theirs:
            try:
                for _ in self._limits:
                    self._prints.append(scratch.nameless_file())
                descriptors = array.array("i", [theirs.fileno(), *self._prints])
                control.sendmsg([command], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
            except OSError:
                self.__exit__()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_how) -> None:
        self._ours.close()
        for descriptor in self._prints:
            os.close(descriptor)

    def fileno(self) -> int:
        return self._ours.fileno()

    @property
    def events(self) -> int:
        """What to wait for."""
        return select.POLLIN | (select.POLLOUT if self._unsent else 0)

    def ask(self, body: bytes) -> None:
        """Sends arguments, as far as they are taken in; `exchange` sends the rest."""
        self._unsent = [memoryview(wire.LENGTH.pack(len(body))), memoryview(body)]
        self._send()

    def finish(self) -> None:
        """Says that nothing more will be asked, once all has been sent."""
        self._last = True
        self._send()

    def exchange(self) -> bool:
        """Sends and takes in what can be; False when the other side is gone."""
        self._send()
        try:
            size = self._ours.recv_into(_chunk, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._pending += _chunk[:size]
        return bool(size)

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self._ours.send(self._unsent[0], socket.MSG_DONTWAIT)
                self._unsent[0] = self._unsent[0][sent:]
                if not self._unsent[0]:
                    del self._unsent[0]
            if self._last:
                self._ours.shutdown(socket.SHUT_WR)
                self._last = False
        except BlockingIOError:
            return
        except OSError:  # it is gone, which will be seen when it is listened to
            self._unsent = []

    def records(self, most: int):
        """The whole records that have come, at most so many; None where something is no record."""
        found, at = [], 0
        while len(found) < most and len(self._pending) - at >= wire.RECORD.size:
            kind, _, _, _, *sizes = wire.RECORD.unpack_from(self._pending, at)
            end = at + wire.RECORD.size + sum(sizes)
            if kind != wire.REPORTED or end - at > self._most_bytes:
                return None
            if len(self._pending) < end:
                break
            found.append(bytes(self._pending[at:end]))
            at = end
        del self._pending[:at]
        return found

    @property
    def said_more(self) -> bool:
        return bool(self._pending)

    def printed(self) -> tuple:
        """What a process has printed that can no longer say so itself."""
        return tuple(map(_printed, self._prints, self._limits))


def _printed(descriptor: int, limit: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, limit, 0) + prints.note(size - limit, limit)
