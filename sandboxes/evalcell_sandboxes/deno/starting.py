"""Starts the process that confines itself and becomes a command, from a thread that does not end before it."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

_BOOTSTRAP = "import sys; sys.path.append(sys.argv.pop(1)); from confinement.launch import main; main()"
_ISOLATED = ("-I", "-S")


def start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts the launcher with these arguments.

    Raises:
        OSError: There can be no more processes.
    """
    return _starter().start(arguments)


def _popen(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *_ISOLATED, *_flags(), "-c", _BOOTSTRAP, str(Path(__file__).parent), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.defpath},  # nothing of ours is in the process, not even before it is the command's
        cwd="/",
        start_new_session=True,
    )


def _flags() -> list[str]:
    """Bytecode is kept where this process keeps it, if it does."""
    kept = ["-X", f"pycache_prefix={Path(sys.pycache_prefix).absolute()}"] if sys.pycache_prefix else []
    return ["-B", *kept] if sys.dont_write_bytecode else kept


class _Starter:
    """A thread that lives as long as this process, and starts all others.

    The kernel ends a process with the *thread* that started it, not with that thread's process.
    """

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[_Start] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="evalcell-starter", daemon=True).start()

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        asked = _Start(arguments)
        self._asked.put(asked)
        return asked.outcome()

    def _serve(self) -> None:
        while True:
            self._asked.get().run()


class _Start:
    """A process that somebody waits for."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._done = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._process = _popen(self._arguments)
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            self._error = error
        self._done.set()

    def outcome(self) -> subprocess.Popen[bytes]:
        self._done.wait()
        if self._process is None:
            assert self._error
            raise self._error
        return self._process


_making = threading.Lock()
_starters: dict[int, _Starter] = {}
"""By the process that it is in: a fork has no threads but the one that forked."""


def _starter() -> _Starter:
    with _making:
        if os.getpid() not in _starters:
            _starters[os.getpid()] = _Starter()
        return _starters[os.getpid()]
