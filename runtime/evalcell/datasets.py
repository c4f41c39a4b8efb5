"""Reads rows from JSONL or a JSON list, one at a time, as text that nobody has decoded yet."""

import codecs
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import cast

from msgspec import Struct

from evalcell.errors import DatasetError

_MOST_LINE_BYTES = 64 * 1024**2
_CHUNK_BYTES = 256 * 1024
_SPACE = " \t\r\n"


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
    index, number, pending = 0, 0, start
    while True:
        chunk = _read(stream, name)
        *lines, pending = (pending + chunk).split(b"\n")
        if not chunk and pending:
            lines, pending = [*lines, pending], b""
        for line in lines:
            number += 1
            if text := line.strip():
                yield Row(index, number, text)
                index += 1
        if not chunk:
            return
        if len(pending) > _MOST_LINE_BYTES:
            raise DatasetError(f"Line {number + 1} of {name} is longer than {_MOST_LINE_BYTES} bytes.")


def _list_rows(stream: BufferedReader, start: bytes, name: str) -> Iterator[Row]:
    text = _ListText(stream, start, name)
    text.expect("[")
    if text.peek() == "]":
        text.expect("]")
    else:
        index = 0
        while True:
            yield Row(index, None, text.element(index))
            index += 1
            if text.peek() != ",":
                break
            text.expect(",")
        text.expect("]")
    if text.peek():
        raise DatasetError(f"The dataset {name} goes on after the end of its list.")


class _ListText:
    """The text of a JSON list, held only from the element being read."""

    def __init__(self, stream: BufferedReader, start: bytes, name: str) -> None:
        self._stream = stream
        self._name = name
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._position = 0
        self._ended = False
        self._append(start)

    def peek(self) -> str:
        """The next character that is not space, or nothing at the end."""
        while True:
            while self._position < len(self._text):
                if self._text[self._position] not in _SPACE:
                    return self._text[self._position]
                self._position += 1
            if self._ended:
                return ""
            self._more()

    def expect(self, character: str) -> None:
        found = self.peek()
        if found != character:
            raise DatasetError(
                f"The dataset {self._name} is not a JSON list: expected {character!r}, found {found or 'its end'!r}."
            )
        self._position += 1

    def element(self, index: int) -> bytes:
        """The text of the next element. Reads on, twice as much each time, until it is whole."""
        self.peek()
        while True:
            try:
                _, end = self._scan(self._text, self._position)
            except (json.JSONDecodeError, RecursionError) as error:
                if self._ended or isinstance(error, RecursionError):
                    raise DatasetError(
                        f"Element {index} of the dataset {self._name} is not valid JSON: {error}."
                    ) from None
            else:
                # A number may go on in what was not read yet: only what follows it shows its end.
                if end < len(self._text) or self._ended:
                    found = self._text[self._position : end]
                    self._position = end
                    return found.encode("utf-8", "surrogatepass")
            self._more()

    def _more(self) -> None:
        self._text = self._text[self._position :]
        self._position = 0
        wanted = max(len(self._text), _CHUNK_BYTES)
        if len(self._text) > _MOST_LINE_BYTES:
            raise DatasetError(f"An element of the dataset {self._name} is longer than {_MOST_LINE_BYTES} characters.")
        while wanted > 0 and not self._ended:
            chunk = _read(self._stream, self._name)
            self._append(chunk)
            self._ended = not chunk
            wanted -= len(chunk)

    def _append(self, chunk: bytes) -> None:
        try:
            self._text += self._decode(chunk, not chunk)
        except UnicodeDecodeError as error:
            raise DatasetError(f"The dataset {self._name} is not UTF-8 text: {error.reason}.") from None
