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
            sent = real(process, message)
            if isinstance(message, kind) and len(killed) < times:
                killed.append(process.pid)
                os.kill(process.pid, how)
            return sent

        monkeypatch.setattr(LaneProcess, "send", send)
        return killed

    return kill_on
