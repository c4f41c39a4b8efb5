"""Where records go: a file that has its final name only when it is whole."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evalcell.errors import UsageError

Sink = Callable[[Sequence[bytes]], None]
"""Takes the record lines of finished rows, in order."""


@contextmanager
def opened(path: str | None) -> Iterator[Sink]:
    """A sink for that path: None keeps nothing, `-` is standard output.

    A file is written beside its final name, with `.partial` at the end, and renamed when the block ends well. When
    it does not, the partial file stays, and the exception that ended the block carries a note that names it.

    Raises:
        UsageError: The file cannot be written.
    """
    if path is None:
        yield _drop
    elif path == "-":
        yield _write_to_stdout
    else:
        with _file(Path(path)) as sink:
            yield sink


def _drop(_rows: Sequence[bytes]) -> None:
    pass


def _write_to_stdout(rows: Sequence[bytes]) -> None:
    sys.stdout.buffer.write(b"".join(rows))
    sys.stdout.buffer.flush()


@contextmanager
def _file(path: Path) -> Iterator[Sink]:
    partial = path.with_name(path.name + ".partial")
    if path.is_dir():
        raise UsageError(f"--out {str(path)!r} is a directory. Name a file in it.")
    try:
        file = partial.open("wb")
    except OSError as error:
        raise UsageError(f"--out {str(path)!r} cannot be written: {error.strerror}.") from None
    try:
        with file:
            yield file.writelines
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        error.add_note(f"The records so far are in {str(partial)!r}.")
        raise
    partial.replace(path)
