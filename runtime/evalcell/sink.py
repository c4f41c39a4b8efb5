"""Where records go: a file that has its final name only when it is whole."""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from evalcell.errors import OutputClosed, OutputError, UsageError

Sink = Callable[[Sequence[bytes]], None]
"""Takes the record lines of finished rows, in order."""


def check(path: str | None, data: str | None) -> None:
    """Refuses what cannot be written to, before any work is done for it.

    Raises:
        UsageError: It is no file, has no directory to be in, or is the dataset, whose path is `data`.
    """
    if path is None:
        return
    if path == "-":
        if sys.stdout is None:
            raise UsageError("--out - writes to standard output, but there is none.")
        return
    if not path:
        raise UsageError("--out names no file.")
    target = Path(path)
    if not target.name or target.is_dir():
        raise UsageError(f"--out {path!r} is a directory. Name a file in it.")
    if not target.parent.is_dir():
        raise UsageError(f"--out {path!r} cannot be written: there is no directory {str(target.parent)!r}.")
    if data in (None, "-"):
        return
    source = Path(data)
    for mine in (target, _partial(target)):
        if mine.exists() and source.exists() and mine.samefile(source):
            raise UsageError(f"--out {path!r} would overwrite the dataset {data!r}. Name another file.")


@contextmanager
def opened(path: str | None) -> Iterator[Sink]:
    """A sink for that path: None keeps nothing, `-` is standard output.

    A file is written beside its final name, with `.partial` at the end, and renamed when the block ends well. When
    it does not, what was written stays, and the exception that ended the block carries a note that names it. A link
    is followed; what is no regular file, such as a pipe, is written to directly.

    Raises:
        OutputError: The records cannot be written.
        OutputClosed: Whoever read them has gone.
    """
    if path is None:
        yield _drop
    elif path == "-":
        yield _writing_to("standard output", sys.stdout.buffer)
    elif Path(path).exists() and not Path(path).is_file():
        with _closing(_open(Path(path)), path) as file:
            yield _writing_to(path, file)
    else:
        with _file(Path(path).resolve()) as sink:
            yield sink


def _drop(_rows: Sequence[bytes]) -> None:
    pass


def _writing_to(name: str, file: IO[bytes]) -> Sink:
    def write(rows: Sequence[bytes]) -> None:
        try:
            file.write(b"".join(rows))
            file.flush()
        except BrokenPipeError:
            raise OutputClosed(name) from None
        except OSError as error:
            raise OutputError(f"{name} cannot be written on: {error.strerror}.") from None

    return write


@contextmanager
def _closing(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Closes the file. What a failed write has left in its buffer fails once more then; the first error says why."""
    try:
        yield file
    except BaseException:
        with suppress(OSError):
            file.close()
        raise
    try:
        file.close()
    except OSError as error:
        raise OutputError(f"{name} cannot be written on: {error.strerror}.") from None


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")


def _open(path: Path, mode: str = "wb") -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror}.") from None


def _open_alone(path: Path) -> IO[bytes]:
    """Opens the file for one run at a time; what another run is writing stays as it is."""
    while True:
        file = _open(path, "ab")
        try:
            if not _locked(file) or _is_still(path, file):
                file.truncate(0)
                return file
        except OSError as error:
            file.close()
            taken = isinstance(error, BlockingIOError)
            why = "it is being written by another run. Name another file" if taken else error.strerror
            raise OutputError(f"{str(path)!r} cannot be written: {why}.") from None
        file.close()  # between opening and locking, another run finished it and gave it its final name


def _locked(file: IO[bytes]) -> bool:
    """Takes the lock; False where the file system knows none."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _is_still(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def _file(path: Path) -> Iterator[Sink]:
    partial, owner = _partial(path), os.getpid()
    with _closing(_open_alone(partial), str(partial)) as file:
        try:
            yield _writing_to(str(partial), file)
            _finish(file, partial, path)
        except BaseException as error:
            if os.getpid() != owner:
                pass  # a forked copy of the process that writes it
            elif partial.exists() and partial.stat().st_size:
                error.add_note(f"The records so far are in {str(partial)!r}.")
            else:
                partial.unlink(missing_ok=True)
            raise


def _finish(file: IO[bytes], partial: Path, path: Path) -> None:
    try:
        os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"{str(path)!r} cannot be written: {error.strerror}.") from None
