"""Where the command begins: interrupts are taken care of and a worker is started before anything slow is imported."""

import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TextIO

INTERRUPTED = 130
_PATIENCE_SECONDS = 10.0

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_WORKING = {"run", "check", "lock"}


def main() -> NoReturn:
    """Runs the command and exits."""
    _have_interrupts(_give_up)  # nothing is done yet, and imports do not bear an exception at any moment
    try:
        with _worker():
            gc.disable()  # until all is imported, of which nothing is garbage
            from evalcell.cli.app import main as run_command

            gc.freeze()
            gc.enable()
            _have_interrupts(_interrupt)
            code = run_command()
        _ignore_interrupts()  # what is done is done, and the interpreter's own end would be cut short by them
    except BaseException as error:
        if not (_was_interrupted() or isinstance(error, KeyboardInterrupt)):
            raise
        sys.stderr.write("error: Interrupted.\n")
        code = INTERRUPTED
    _exit(code)


def _worker() -> contextlib.AbstractContextManager[None]:
    """The worker process that is going to parse the evaluator: it starts while this one imports."""
    if _WORKING.isdisjoint(sys.argv[1:2]):
        return contextlib.nullcontext()
    from evalcell.engine import spawning

    typescript = any(argument.endswith(".ts") for argument in sys.argv[2:])
    return spawning.ahead("deno" if typescript else "wasm")


def _exit(code: int) -> NoReturn:
    """Ends the process at once, since everything has been closed by now: taking the interpreter apart is slow.

    Also, CPython remembers an interrupt that struck inside an `exec`, as many imports hold, even when it was handled,
    and would then end by a signal instead of with this code.
    """
    flushed = [_flushed(stream) for stream in (sys.stdout, sys.stderr)]
    if all(flushed) or code == INTERRUPTED:
        os._exit(code)
    sys.exit(code)  # which says what could not be written


def _flushed(stream: TextIO) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):  # closed, or never there
        return False
    return True


def _have_interrupts(handle: Callable[[int, FrameType | None], None]) -> None:
    for how in _INTERRUPTS:
        if signal.getsignal(how) != signal.SIG_IGN:  # as `nohup` and background jobs want it
            signal.signal(how, handle)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    """SIGTERM ends a run as Ctrl-C does: lanes are killed, what was written is kept and named. Once is enough.

    An exception that strikes inside a finalizer or a weak reference's callback is lost, and one that strikes inside
    the import machinery may leave a lock behind. So when it has not ended the command in time, the alarm does.
    """
    _ignore_interrupts()
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE_SECONDS)
    raise KeyboardInterrupt


def _was_interrupted() -> bool:
    """What is raised then comes of that: where it strikes while a class is made, pydantic says the class is wrong."""
    return signal.getsignal(signal.SIGALRM) is _give_up


def _ignore_interrupts() -> None:
    for how in _INTERRUPTS:
        signal.signal(how, signal.SIG_IGN)


def _give_up(_signal: int, _frame: FrameType | None) -> None:
    """Lanes end with this process, and records that were written stay where they are."""
    try:
        blocking = os.get_blocking(2)
        os.set_blocking(2, False)
        try:
            os.write(2, b"error: Interrupted.\n")
        finally:
            os.set_blocking(2, blocking)  # it is the terminal's too
    finally:  # whatever became of stderr
        os._exit(INTERRUPTED)
