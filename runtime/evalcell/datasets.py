"""Reads rows from JSONL or a JSON list, one at a time, as text that nobody has decoded yet."""

import codecs
import queue
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import cast

from msgspec import Struct

from evalcell.errors import DatasetError

_MOST_LINE_BYTES = 64 * 1024**2
_CHUNK_BYTES = 256 * 1024
_NOT_SPACE = re.compile(rb"[^ \t\r\n]")
# Strings are passed over whole, so that what looks like structure inside them is not; one that does not end yet
# takes the rest. Possessive, so that no input makes the search go back.
_TOKENS = re.compile(rb'"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+(?:"|\\?\Z)|[\[\]{},]')
_MOST_WAITING_ROWS = 256
_IDLE_SECONDS = 0.05


class Row(Struct, frozen=True):
    """One row: its index among the rows, the line it began on (None in a list), and its JSON text."""

    index: int
    line: int | None
    text: bytes

    def place(self) -> str:
        return f"line {self.line}" if self.line is not None else f"element {self.index}"


@contextmanager
def opened(path: str) -> Iterator[Iterator[Row]]:
    """Opens a dataset by its path, or standard input by `-`.

    Raises:
        DatasetError: It is not there or cannot be read; while iterating, that it is malformed beyond one line.
    """
    if path == "-":
        yield _rows(cast(BufferedReader, sys.stdin.buffer), "standard input")
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; opening it is what may fail
    except FileNotFoundError:
        raise DatasetError(f"There is no dataset {path!r}.") from None
    except OSError as error:
        raise DatasetError(f"The dataset {path!r} cannot be read: {error.strerror}.") from None
    with file:
        yield _rows(file, repr(path))


def _rows(stream: BufferedReader, name: str) -> Iterator[Row]:
    """Rows are objects, so a dataset that begins with a bracket is a list of them and anything else has one a line."""
    start = b""
    while not start.strip() and (chunk := _read(stream, name)):
        start = start.strip() + chunk if start else chunk.removeprefix(codecs.BOM_UTF8)
    if start.lstrip().startswith(b"["):
        return _list_rows(stream, start, name)
    return _line_rows(stream, start, name)


def _read(stream: BufferedReader, name: str) -> bytes:
    try:
        return stream.read1(_CHUNK_BYTES)  # what is there now: a slow pipe need not fill a chunk first
    except OSError as error:
        raise DatasetError(f"The dataset {name} cannot be read: {error.strerror}.") from None


def _line_rows(stream: BufferedReader, start: bytes, name: str) -> Iterator[Row]:
    index, number, pending, chunk = 0, 0, b"", start
    while True:
        *lines, pending = (pending + chunk).split(b"\n")
        if not chunk and pending:
            lines, pending = [pending], b""
        for line in lines:
            number += 1
            if text := line.strip():
                yield Row(index, number, text)
                index += 1
        if not chunk:
            return
        if len(pending) > _MOST_LINE_BYTES:
            raise DatasetError(f"Line {number + 1} of {name} is longer than {_MOST_LINE_BYTES} bytes.")
        chunk = _read(stream, name)


def _list_rows(stream: BufferedReader, start: bytes, name: str) -> Iterator[Row]:
    text = _ListText(stream, start, name)
    text.expect(b"[")
    if text.peek() == b"]":
        text.expect(b"]")
    else:
        index = 0
        while True:
            yield Row(index, None, text.element(index))
            index += 1
            if text.peek() != b",":
                break
            text.expect(b",")
        text.expect(b"]")
    if text.peek():
        raise DatasetError(f"The dataset {name} goes on after the end of its list.")


class _ListText:
    """The text of a JSON list, held only from the element being read, and cut into elements without decoding them."""

    def __init__(self, stream: BufferedReader, start: bytes, name: str) -> None:
        self._stream = stream
        self._name = name
        self._text = start
        self._position = 0
        self._ended = False

    def peek(self) -> bytes:
        """The next byte that is not space, or nothing at the end."""
        while True:
            match = _NOT_SPACE.search(self._text, self._position)
            if match is not None:
                self._position = match.start()
                return match[0]
            self._position = len(self._text)
            if self._ended:
                return b""
            self._more()

    def expect(self, wanted: bytes) -> None:
        found = self.peek()
        if found != wanted:
            seen = repr(found.decode(errors="backslashreplace")) if found else "its end"
            raise DatasetError(
                f"The dataset {self._name} is not a JSON list: expected {wanted.decode()!r}, found {seen}."
            )
        self._position += 1

    def element(self, index: int) -> bytes:
        """The text of the next element. Reads on, twice as much each time, until it is whole."""
        self.peek()
        while (end := self._end_of_element()) is None:
            if self._ended:
                raise DatasetError(f"The dataset {self._name} ends in the middle of element {index}.")
            self._more()
        found = self._text[self._position : end].rstrip()
        if not found:
            raise DatasetError(f"Element {index} of the dataset {self._name} is missing: a comma too many?")
        self._position = end
        return found

    def _end_of_element(self) -> int | None:
        """Where the comma or bracket stands that ends the element; None when it is not there yet."""
        depth = 0
        for token in _TOKENS.finditer(self._text, self._position):
            match token[0][:1]:
                case b"[" | b"{":
                    depth += 1
                case b"]" | b"}" if depth:
                    depth -= 1
                case b"," | b"]" | b"}" if not depth:
                    return token.start()
        return None

    def _more(self) -> None:
        self._text = self._text[self._position :]
        self._position = 0
        if len(self._text) > _MOST_LINE_BYTES:
            raise DatasetError(f"An element of the dataset {self._name} is longer than {_MOST_LINE_BYTES} bytes.")
        chunks = [self._text]
        wanted = max(len(self._text), _CHUNK_BYTES)
        while wanted > 0:
            chunks.append(_read(self._stream, self._name))
            self._ended = not chunks[-1]
            # A short chunk is all that a slow pipe has for now: look at that before waiting for more.
            wanted = wanted - len(chunks[-1]) if len(chunks[-1]) == _CHUNK_BYTES else 0
        self._text = b"".join(chunks)


def live(rows: Iterator[Row], path: str) -> Iterator[Row | None]:
    """The same rows, with None where the source has none for now: whoever waits for a pipe can do other work meanwhile.

    Only what may keep one waiting is read in a thread of its own; a file is not.
    """
    if path != "-" and Path(path).is_file():
        yield from rows
        return
    inbox: queue.Queue[Row | DatasetError | None] = queue.Queue(_MOST_WAITING_ROWS)
    threading.Thread(target=_pass_on, args=(rows, inbox), name="evalcell-rows", daemon=True).start()
    while True:
        try:
            item = inbox.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            yield None
            continue
        if item is None:
            return
        if isinstance(item, DatasetError):
            raise item
        yield item


def _pass_on(rows: Iterator[Row], inbox: "queue.Queue[Row | DatasetError | None]") -> None:
    try:
        for row in rows:
            inbox.put(row)
    except DatasetError as error:
        inbox.put(error)
    else:
        inbox.put(None)
