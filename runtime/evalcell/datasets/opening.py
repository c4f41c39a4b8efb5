"""Opens a dataset, whatever it is: a file, standard input, or rows that are in memory already."""

import codecs
import os
import stat
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Protocol

from evalcell.datasets.arrow import Parquet, stream_rows
from evalcell.datasets.csv_text import Records
from evalcell.datasets.extent import Extent
from evalcell.datasets.formats import PARQUET_MAGIC, Format, recognised, refuse_lookalikes, tells
from evalcell.datasets.json_text import Elements, Lines
from evalcell.datasets.row import Row
from evalcell.datasets.streams import FileStream, Stream, decompressed
from evalcell.datasets.values import row_of
from evalcell.errors import DatasetError, did_you_mean_file

STDIN = "-"


class Splitter(Protocol):
    """Cuts text into rows as it comes."""

    def feed(self, chunk: bytes) -> Iterator[Row]: ...

    def end(self) -> Iterator[Row]: ...


class Dataset(Iterator[Row | None]):
    """Rows, with None where a pipe has none for now: whoever waits can do other work meanwhile.

    Iterating raises `DatasetError` where the dataset is malformed beyond one row.
    """

    def __init__(self, rows: Iterator[Row | None], extent: Extent | None = None) -> None:
        self._rows = rows
        self._extent = extent

    def __next__(self) -> Row | None:
        return next(self._rows)

    def fraction(self, rows: int) -> float | None:
        """How much of the dataset its first so many rows are; None where its size is not known."""
        return None if self._extent is None else self._extent.fraction(rows)

    @classmethod
    def from_stream(cls, file: FileStream, path: str, form: Format | None) -> "Dataset":
        """A dataset out of a file or a pipe; nothing is read before the first row is asked for."""
        dataset = cls(iter(()))
        dataset._rows = dataset._read(file, path, form)
        return dataset

    def _read(self, file: FileStream, path: str, form: Format | None) -> Iterator[Row | None]:
        stream = yield from decompressed(file)
        head = yield from stream.head(tells)
        refuse_lookalikes(stream.name, head)
        form = form or recognised(path, head)
        if form is Format.PARQUET:
            yield from self._read_parquet(stream, head)
        else:
            yield from self._read_text(file, stream, _splitter(form, head, stream.name))

    def _read_text(self, file: FileStream, stream: Stream, splitter: Splitter) -> Iterator[Row | None]:
        extent = self._extent = Extent(file.size) if file.size is not None else None
        count = 0
        first = True
        while (chunk := stream.read()) != b"":
            if chunk is None:
                yield None
                continue
            # A chunk's rows are cut before the first goes out, so that it is known where in the file they lie.
            rows, error = _until_error(splitter.feed(chunk.removeprefix(codecs.BOM_UTF8) if first else chunk))
            first = False
            count += len(rows)
            if extent is not None:
                extent.mark(count, file.position)
            yield from rows
            if error is not None:
                raise error
        yield from splitter.end()

    def _read_parquet(self, stream: Stream, head: bytes) -> Iterator[Row | None]:
        if not head.startswith(PARQUET_MAGIC):
            raise DatasetError(f"The dataset {stream.name} is not a Parquet file.")
        own = _seekable(stream)
        import tempfile  # slow, and seldom needed

        with own or tempfile.TemporaryFile() as file:
            if own is None:
                yield from _copy(stream, file)
            parquet = Parquet(file, stream.name)
            self._extent = Extent.of_rows(parquet.count)
            yield from parquet.rows()


def _until_error(rows: Iterator[Row]) -> tuple[list[Row], DatasetError | None]:
    found = []
    try:
        for row in rows:
            found.append(row)  # noqa: PERF402 - those before the error count too
    except DatasetError as error:
        return found, error
    return found, None


def _splitter(form: Format, head: bytes, name: str) -> Splitter:
    match form:
        case Format.CSV:
            return Records(name, None)
        case Format.TSV:
            return Records(name, "\t")
        case Format.JSON:
            if head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] not in (b"[", b""):
                raise DatasetError(f"The dataset {name} is not a JSON list. For one object a line, say --format jsonl.")
            return Elements(name) if head.strip() else Lines(name)
    return Lines(name)


def _seekable(stream: Stream) -> IO[bytes] | None:
    """The stream's own file, from its beginning; None for what can only be read once."""
    if not isinstance(stream, FileStream) or not stream.is_file:
        return None
    os.lseek(stream.descriptor, 0, os.SEEK_SET)
    return os.fdopen(os.dup(stream.descriptor), "rb")


def _copy(stream: Stream, spool: IO[bytes]) -> Generator[None, None, None]:
    """Parquet is read from its end, so what comes through a pipe is put in a file first. Yields while waiting."""
    while (chunk := stream.read()) != b"":
        if chunk is None:
            yield None
        else:
            spool.write(chunk)
    spool.seek(0)


def only_rows(rows: Iterator[Row | None]) -> Iterator[Row]:
    """The rows alone, for whoever has nothing else to do than wait for them."""
    return (row for row in rows if row is not None)


def with_first(rows: Iterator[Row | None]) -> tuple[Row, Iterator[Row | None]]:
    """The first row, and all rows as they came, this one among them.

    Raises:
        DatasetError: There is none.
    """
    first = next(only_rows(rows), None)
    if first is None:
        raise DatasetError("The dataset has no rows.")
    return first, chain([first], rows)


def _standard_input() -> int:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError):  # none at all, or a notebook's, which is no file
        raise DatasetError("--data - reads standard input, but there is none.") from None


@contextmanager
def opened(path: str, form: Format | None = None) -> Iterator[Dataset]:
    """Opens a dataset by its path, or standard input by `-`. Its format is recognised where none is named.

    Raises:
        DatasetError: It is not there or cannot be read.
    """
    if path == STDIN:
        yield Dataset.from_stream(FileStream(_standard_input(), "standard input"), "", form)
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise DatasetError(f"There is no dataset {path!r}.{did_you_mean_file(Path(path))}") from None
    except OSError as error:
        raise DatasetError(f"The dataset {path!r} cannot be read: {error.strerror}.") from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise DatasetError(f"The dataset {path!r} cannot be read: it is a directory.")
        yield Dataset.from_stream(FileStream(descriptor, repr(path)), path, form)
    finally:
        os.close(descriptor)


def in_memory(rows: object) -> Dataset:
    """A dataset out of rows that are there already: dicts, or a table or data frame that gives out an Arrow stream.

    Raises:
        DatasetError: It is neither.
    """
    extent = Extent.of_rows(len(rows)) if isinstance(rows, Sized) else None
    if hasattr(rows, "__arrow_c_stream__"):
        return Dataset(stream_rows(rows, f"a {type(rows).__name__}"), extent)
    if isinstance(rows, Mapping | bytes) or not isinstance(rows, Iterable):
        raise DatasetError(f"A dataset is a path, an iterable of dicts or a table, not {type(rows).__name__}.")
    return Dataset((row_of(row, index) for index, row in enumerate(rows)), extent)
