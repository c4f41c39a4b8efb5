"""A lane as its parent sees it: a process that can be talked to, waited for and killed."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import evalcell
import evalcell_sandboxes
from evalcell.engine import protocol
from evalcell.engine.protocol import FromLane, ToLane
from evalcell_sandboxes import SandboxFault
from evalcell_sandboxes.caching import cache_dir

_STDERR_CHARACTERS = 2_000
_BOOTSTRAP = "import sys; sys.path[:] = sys.argv[2:]; from evalcell.engine.lane import main; main(int(sys.argv[1]))"
"""Isolated, so that nothing decides what a lane imports but the path that it is given."""


class LaneProcess:
    """Starts a lane and holds the connection to it. Dead once `receive` gives None or `kill` was called."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", *_flags(), "-c", _BOOTSTRAP, str(theirs.fileno()), *_import_path()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                cwd="/",
                start_new_session=True,  # a Ctrl-C in the terminal reaches the parent alone
            )
        self._owner = os.getpid()
        self.connection = ours
        self.heard = time.monotonic()
        self._frames = protocol.Frames(ours)

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


def _import_path() -> list[str]:
    """Where a lane imports from: as this process does, but for the current directory and the one that the user's own
    program lies in. A file in them may be an evaluator, named like a module that a lane imports.
    """
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    shunned = {os.path.realpath(place) for place in (_here(), program and Path(program).parent) if place}
    kept = [path for path in sys.path if path and os.path.realpath(path) not in shunned]
    ours = [str(Path(package.__path__[0]).parent) for package in (evalcell, evalcell_sandboxes)]
    return list(dict.fromkeys([*kept, *ours]))


def _here() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - compared as text, links and all
    except FileNotFoundError:  # somebody has removed it
        return None


def _flags() -> list[str]:
    return ["-B"] if sys.dont_write_bytecode else []


def _environment() -> dict[str, str]:
    """All that a lane inherits: nothing of the user's own environment, which may hold secrets."""
    return {
        "EVALCELL_CACHE_DIR": str(cache_dir()),
        "PATH": os.defpath,
    }
