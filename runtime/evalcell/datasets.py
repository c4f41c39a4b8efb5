"""Reads rows from JSONL or a JSON list, one at a time, as text that nobody has decoded yet."""

import codecs
import os
import re
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from evalcell.errors import DatasetError

_MOST_BYTES = 64 * 1024**2
_CHUNK_BYTES = 256 * 1024
# Strings are passed over whole, so that what looks like structure inside them is not; one that does not end yet
# takes the rest. Possessive, so that no input makes the search go back.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]')
_WHOLE_STRING = re.compile(rb'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"')
_IDLE_SECONDS = 0.05


class Row(Struct, frozen=True):
    """One row: its index among the rows, the line it began on (None in a list), and its JSON text."""

    index: int
    line: int | None
    text: bytes

    def place(self) -> str:
        return f"line {self.line}" if self.line is not None else f"element {self.index}"


@contextmanager
def opened(path: str) -> Iterator[Iterator[Row | None]]:
    """Opens a dataset by its path, or standard input by `-`.

    Gives the rows, with None where a pipe has none for now: whoever waits for it can do other work meanwhile.

    Raises:
        DatasetError: It is not there or cannot be read; while iterating, that it is malformed beyond one row.
    """
    if path == "-":
        if sys.stdin is None:
            raise DatasetError("--data - reads standard input, but there is none.")
        yield _rows(_Source(sys.stdin.fileno(), "standard input"))
        return
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise DatasetError(f"There is no dataset {path!r}.") from None
    except OSError as error:
        raise DatasetError(f"The dataset {path!r} cannot be read: {error.strerror}.") from None
    try:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise DatasetError(f"The dataset {path!r} cannot be read: it is a directory.")
        yield _rows(_Source(descriptor, repr(path)))
    finally:
        os.close(descriptor)


def only_rows(rows: Iterator[Row | None]) -> Iterator[Row]:
    """The rows alone, for whoever has nothing else to do than wait for them."""
    return (row for row in rows if row is not None)


class _Source:
    """Bytes from a descriptor. Nothing is buffered and nothing is locked, so a reader can be stopped at any time."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.name = name
        self._descriptor = descriptor
        self._may_wait = not stat.S_ISREG(os.fstat(descriptor).st_mode)

    def read(self) -> bytes | None:
        """What is there now: None when there is nothing yet, nothing at the end."""
        try:
            if self._may_wait and not select.select([self._descriptor], [], [], _IDLE_SECONDS)[0]:
                return None
            return os.read(self._descriptor, _CHUNK_BYTES)
        except OSError as error:
            raise DatasetError(f"The dataset {self.name} cannot be read: {error.strerror}.") from None


def _rows(source: _Source) -> Iterator[Row | None]:
    """Rows are objects, so a dataset that begins with a bracket is a list of them and anything else has one a line."""
    start = b""
    while not start.removeprefix(codecs.BOM_UTF8).strip() and len(start) < _MOST_BYTES:
        chunk = source.read()
        if chunk is None:
            yield None
        elif chunk:
            start += chunk
        else:
            break
    start = start.removeprefix(codecs.BOM_UTF8)
    splitter = _ListSplitter(source.name) if start.lstrip().startswith(b"[") else _LineSplitter(source.name)
    chunk = start
    while chunk != b"":
        yield from splitter.feed(chunk) if chunk is not None else [None]
        chunk = source.read()
    yield from splitter.end()


class _LineSplitter:
    """Cuts text into rows at the ends of lines. Blank lines are no rows, but they count as lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pending = b""
        self._index = 0
        self._line = 0

    def feed(self, chunk: bytes) -> Iterator[Row]:
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        yield from self._cut(lines)
        if len(self._pending) > _MOST_BYTES:
            raise DatasetError(f"Line {self._line + 1} of {self._name} is longer than {_MOST_BYTES} bytes.")

    def end(self) -> Iterator[Row]:
        return self._cut([self._pending])

    def _cut(self, lines: list[bytes]) -> Iterator[Row]:
        for line in lines:
            self._line += 1
            if text := line.strip():
                yield Row(self._index, self._line, text)
                self._index += 1


class _ListSplitter:
    """Cuts the text of a JSON list into its elements without decoding them, holding only the unfinished one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = bytearray()
        self._scanned = 0
        self._depth = 0
        self._index = 0
        self._closed = False

    def feed(self, chunk: bytes) -> Iterator[Row]:
        self._text += chunk
        elements, start = [], 0
        for token in _TOKENS.finditer(self._text, self._scanned):
            first, end = token[0][:1], token.end()
            if first == b'"' and end == len(self._text) and not _WHOLE_STRING.fullmatch(token[0]):
                break  # goes on in the next chunk
            self._scanned = end
            opens, closes = first in (b"[", b"{"), first in (b"]", b"}")
            if self._depth == 1 and (first == b"," or closes):
                elements.append((bytes(self._text[start : token.start()]).strip(), first))
                start = end
            elif self._depth == 0 and opens:
                start = end
            self._depth += opens - closes
        else:
            self._scanned = len(self._text)
        del self._text[:start]
        self._scanned -= start
        for text, ending in elements:
            yield from self._row(text, ending)
        self._check()

    def _row(self, text: bytes, ending: bytes) -> Iterator[Row]:
        if self._closed or ending == b"}":
            raise DatasetError(
                f"The dataset {self._name} is not one JSON list: it goes on after element {self._index}."
            )
        self._closed = ending == b"]"
        if text:
            yield Row(self._index, None, text)
            self._index += 1
        elif self._index or not self._closed:
            raise DatasetError(f"Element {self._index} of the dataset {self._name} is missing: a comma too many?")

    def _check(self) -> None:
        if self._closed and (self._depth or self._text.strip()):
            raise DatasetError(f"The dataset {self._name} goes on after the end of its list.")
        if len(self._text) > _MOST_BYTES:
            raise DatasetError(f"Element {self._index} of the dataset {self._name} is longer than {_MOST_BYTES} bytes.")

    def end(self) -> Iterator[Row]:
        if not self._closed:
            raise DatasetError(f"The dataset {self._name} ends in the middle of element {self._index}.")
        return iter(())
