"""What tests of the core share."""

import os
import signal

import pytest

from evalcell.engine.process import LaneProcess


@pytest.fixture
def kill_on(monkeypatch):
    """Kills lanes that are sent a message of that kind, so many times."""

    def kill_on(kind, times, how=signal.SIGKILL):
        real, killed = LaneProcess.send, []

        def send(process, message):
            if not isinstance(message, kind) or len(killed) >= times:
                return real(process, message)
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGSTOP)  # so that it cannot answer before it is killed
            sent = real(process, message)
            os.kill(process.pid, how)
            return sent

        monkeypatch.setattr(LaneProcess, "send", send)
        return killed

    return kill_on
