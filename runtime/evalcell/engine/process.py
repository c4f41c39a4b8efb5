"""A lane as its parent sees it: a process that can be talked to, waited for and killed."""

import contextlib
import os
import signal
import time

from evalcell.engine import protocol, spawning
from evalcell.engine.protocol import Begin, FromLane, ToLane
from evalcell_sandboxes import SandboxFault
from evalcell_sandboxes.site import configuration

_STDERR_CHARACTERS = 2_000


class LaneProcess:
    """Starts a lane and holds the connection to it. Dead once `receive` gives None or `kill` was called."""

    def __init__(self) -> None:
        self._process, self.connection = spawning.take()
        self._owner = os.getpid()
        self.heard = time.monotonic()
        self._frames = protocol.Frames(self.connection)
        self.send(Begin(configuration()))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: ToLane) -> bool:
        """Sends a message; False when the lane is dead."""
        try:
            protocol.send(self.connection, message)
        except OSError:
            return False
        self.heard = time.monotonic()
        return True

    def receive(self) -> list[FromLane] | None:
        """The messages that have arrived; None when the lane is dead."""
        bodies = self._frames.receive()
        self.heard = time.monotonic()
        return None if bodies is None else [protocol.decode_from_lane(body) for body in bodies]

    def answer(self, seconds: float) -> FromLane:
        """Waits for the one answer to what was sent last.

        Raises:
            SandboxFault: The lane died, or stayed silent for longer than that.
        """
        self.connection.settimeout(seconds)
        try:
            while (answers := self.receive()) is not None:
                if answers:
                    return answers[0]
        except TimeoutError:
            raise SandboxFault(f"A worker process did not answer within {seconds:g} s.") from None
        finally:
            self.connection.settimeout(None)
        raise SandboxFault("A worker process died.")

    def kill(self) -> str:
        """Ends the process for good and gives what is known of its death."""
        assert self._process.stderr is not None
        if self._process.stderr.closed:
            return ""
        if os.getpid() != self._owner:  # a forked copy of the process that started it: not its lane to end
            self.connection.close()
            self._process.stderr.close()
            return ""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        self.connection.close()
        with self._process.stderr as stderr:
            said = stderr.read().decode(errors="replace")[-_STDERR_CHARACTERS:].strip()
        code = self._process.wait()
        return f" Exit code {code}." + (f" It said:\n{said}" if said else "")
