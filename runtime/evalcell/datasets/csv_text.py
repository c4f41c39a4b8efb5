"""Cuts CSV into rows: objects whose fields are the columns of the header and whose values are text, as it stands there.

Nothing is guessed about cells. `007`, `1.50`, `true` and an empty cell are what somebody wrote, and what a model
answered may look like any of them; an evaluator that wants a number says `float(...)`.
"""

import csv
import re
import threading
from collections.abc import Iterator

import msgspec

from evalcell.datasets.lines import LineCutter
from evalcell.datasets.row import MOST_BYTES, MOST_TEXT, Row, first_twice
from evalcell.errors import DatasetError

_CELL_LIMIT = threading.Lock()
_QUOTED = re.compile(rb'"[^"]*+"?')
_CLOSING = re.compile(rb'[^"]*+(?:""[^"]*+)*+"')
"""From inside a quoted cell to the quote that ends it; two quotes are one that belongs to the text."""


class Records:
    """Cuts text into rows at the ends of records; a quoted cell may hold line ends of its own."""

    def __init__(self, name: str, delimiter: str | None) -> None:
        self._name = name
        self._delimiter = delimiter
        self._columns: list[str] = []
        self._cutter = LineCutter()
        self._unfinished = bytearray()
        self._line = 1
        self._index = 0

    def feed(self, chunk: bytes) -> Iterator[Row]:
        yield from self._read([line + b"\n" for line in self._cutter.feed(chunk)])
        if self._cutter.held_bytes + len(self._unfinished) > MOST_BYTES:
            raise DatasetError(
                f"The record on line {self._line} of {self._name} is longer than {MOST_TEXT}. "
                "Is there a quote that is never closed?"
            )

    def end(self) -> Iterator[Row]:
        if rest := self._cutter.rest():
            yield from self._read([rest])
        if self._unfinished:
            raise DatasetError(f"The record on line {self._line} of {self._name} has a quote that is never closed.")

    def _read(self, lines: list[bytes]) -> list[Row]:
        records = self._whole_records(lines)
        # What is no UTF-8 becomes lone surrogates here, which no row can be encoded with: it fails alone.
        texts = (record.decode("utf-8", "surrogateescape") for record in records)
        cells = csv.reader(texts, delimiter=self._delimiter or ",")
        with _CELL_LIMIT:
            most_before = csv.field_size_limit(MOST_BYTES)  # the module keeps one limit for the whole process
            try:
                return [row for record in records if (row := self._parse(record, cells)) is not None]
            finally:
                csv.field_size_limit(most_before)

    def _whole_records(self, lines: list[bytes]) -> list[bytes]:
        """The records that the lines complete; what comes after them waits for more."""
        if self._delimiter is None and lines:
            self._delimiter = _delimiter_of(next((line for line in lines if line.strip()), b""))
        opening = (self._delimiter or ",").encode() + b'"'
        records = []
        for line in lines:
            inside = bool(self._unfinished)
            if (inside or b'"' in line) and _ends_in_quotes(line, opening, inside=inside):
                self._unfinished += line
            elif inside:
                records.append(bytes(self._unfinished) + line)
                self._unfinished.clear()
            else:
                records.append(line)
        return records

    def _parse(self, record: bytes, parsed: Iterator[list[str]]) -> Row | None:
        """The row of a record, which is the next to be parsed; None for a blank line and for the header."""
        line, self._line = self._line, self._line + record.count(b"\n")
        try:
            cells, problem = next(parsed), ""
        except csv.Error as error:
            cells, problem = [], _problem(error)
        if not cells and not problem:
            return None
        if not self._columns:
            self._columns = self._header(cells, line, problem)
            return None
        return self._row(line, cells, problem)

    def _header(self, cells: list[str], line: int, problem: str) -> list[str]:
        """The names of the columns. One without a name, such as an index, is called by its place."""
        where = f"The header on line {line} of {self._name}"
        if problem:
            raise DatasetError(f"{where} {problem}.")
        names = [cell if cell.strip() else f"column {number}" for number, cell in enumerate(cells, start=1)]
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise DatasetError(f"{where} is not UTF-8 text. Save the file as UTF-8.") from None
        if (twice := first_twice(names)) is not None:
            raise DatasetError(f"{where} names the column {twice!r} twice.")
        return names

    def _row(self, line: int, cells: list[str], problem: str) -> Row:
        index, self._index = self._index, self._index + 1
        if not problem and len(cells) != len(self._columns):
            problem = f"has {len(cells)} cells, and the header names {len(self._columns)} columns"
        if problem:
            return Row(index, line, b"", problem)
        try:
            return Row(index, line, msgspec.json.encode(dict(zip(self._columns, cells, strict=True))))
        except UnicodeEncodeError:
            return Row(index, line, b"", "is not UTF-8 text")


def _problem(error: csv.Error) -> str:
    """The module speaks to those who call it; here is what it means for those who wrote the file."""
    if "new-line character" in str(error):
        return "has a carriage return in a cell that is not quoted"
    return f"is not CSV: {error}"


def _delimiter_of(header: bytes) -> str:
    """A comma if the header has one outside of quotes, else a semicolon or a tab, as spreadsheets write them."""
    plain = _QUOTED.sub(b"", header)
    return next((mark for mark in (",", ";", "\t") if mark.encode() in plain), ",")


def _ends_in_quotes(line: bytes, opening: bytes, *, inside: bool) -> bool:
    """Whether the line ends inside a quoted cell. A cell is quoted when its first character is a quote."""
    position = 0
    if not inside and line.startswith(b'"'):
        position = 1
    elif not inside:
        if (quoted := line.find(opening)) < 0:
            return False
        position = quoted + len(opening)
    while closing := _CLOSING.match(line, position):
        if (quoted := line.find(opening, closing.end())) < 0:
            return False
        position = quoted + len(opening)
    return True
