"""Starts the processes of lanes. Imports nothing slow, because a command does this before it imports anything else."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

_BOOTSTRAP = """
import gc, sys
gc.disable()  # until all is imported, of which nothing is garbage
descriptor, sandbox, *sys.path = sys.argv[1:]
from evalcell.engine.lane import main
main(int(descriptor), sandbox)
"""
_PACKAGES = ("evalcell", "evalcell_sandboxes")
_ISOLATED = ("-I", "-S")
"""Nothing decides what a lane imports but the path that it is given."""


class Spawned(NamedTuple):
    """A process that has been started, and our end of the connection to it."""

    process: subprocess.Popen[bytes]
    connection: socket.socket


_ahead: list[Spawned] = []


@contextlib.contextmanager
def ahead(sandbox: str) -> Iterator[None]:
    """Starts a process now, to be the next one that is taken: it needs as long to import what that sandbox works with
    as a command does to import the rest. One that was not wanted in the end is killed.
    """
    with contextlib.suppress(OSError):  # heard of when the process is needed
        _ahead.append(_spawn(sandbox))
    try:
        yield
    finally:
        while _ahead:
            process, connection = _ahead.pop()
            with process, connection:
                process.kill()


def take() -> Spawned:
    """The process that was started ahead, or a new one."""
    return _ahead.pop() if _ahead else _spawn()


def _spawn(sandbox: str = "") -> Spawned:
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, *_ISOLATED, *_flags(), "-c", _BOOTSTRAP, str(theirs.fileno()), sandbox, *_import_path()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={"PATH": os.defpath},  # nothing of the user's own environment, which may hold secrets
            cwd="/",
            start_new_session=True,  # a Ctrl-C in the terminal reaches the parent alone
        )
    return Spawned(process, ours)


def _import_path() -> list[str]:
    """Where a lane imports from: as this process does, but for the current directory and the one that the user's own
    program lies in. A file in them may be an evaluator, named like a module that a lane imports.
    """
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    shunned = {os.path.realpath(place) for place in (_here(), program and Path(program).parent) if place}
    kept = [path for path in sys.path if path and os.path.realpath(path) not in shunned]
    ours = [str(Path(found.origin).parents[1]) for name in _PACKAGES if (found := find_spec(name)) and found.origin]
    return list(dict.fromkeys([*kept, *ours]))


def _here() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - compared as text, links and all
    except FileNotFoundError:  # somebody has removed it
        return None


def _flags() -> list[str]:
    """Bytecode is kept where this process keeps it, if it does."""
    kept = ["-X", f"pycache_prefix={Path(sys.pycache_prefix).absolute()}"] if sys.pycache_prefix else []
    return ["-B", *kept] if sys.dont_write_bytecode else kept
