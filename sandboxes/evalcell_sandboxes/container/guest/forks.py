"""Rows in forks of the zygote, as the supervisor sees them: it is told how they ended."""

import contextlib
import select
import socket
import struct
import time

import zygote

_STATUS_SECONDS = 2.0
"""How long the zygote may take to say how a process ended that is gone."""
_LOOK_SECONDS = 0.2


class Forks:
    """The zygote, as what makes the processes of calls."""

    def __init__(self, control: socket.socket, processes, notices) -> None:
        self.control = control
        self._processes = processes
        self._notices = notices

    def has_ended(self) -> bool:
        """It would be heard."""
        return False

    def gone(self, until: float) -> bool:
        """Whether the process of a call is gone by then: the zygote says so. One that was stopped never does."""
        waiting = select.poll()
        waiting.register(self.control, select.POLLIN)
        while not self._notices.poll(waiting, min(until, time.monotonic() + _LOOK_SECONDS)):
            if time.monotonic() >= until or self._processes.zygote_is_stopped():
                return False
        return True

    def status(self):
        """How it ended, by the zygote's word. Without one, that is ended too."""
        if self.gone(time.monotonic() + _STATUS_SECONDS):
            with contextlib.suppress(OSError, struct.error):
                return zygote.STATUS.unpack(self.control.recv(zygote.STATUS.size))
        self._processes.end_all()
        return None
