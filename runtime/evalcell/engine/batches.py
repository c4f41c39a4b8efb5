"""Rows on their way through the engine: read in batches, out with lanes in spans, given out when they are finished."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.errors import DatasetError
from evalcell.tally import Tally

_MOST_BATCH_BYTES = 1024**2
_READ_SECONDS = 0.1


class Finished(NamedTuple):
    """Rows that are done, in order: the record lines of each, what they add to the tally, which were malformed."""

    rows: list[bytes]
    tally: Tally
    malformed: list[str]


class Batch:
    """Rows that were read together, with what has come back of them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.lines: list[bytes | None] = [None] * len(rows)
        self.missing = len(rows)
        self.tally = Tally()
        self.malformed: list[str] = []
        self.held_bytes = 0

    def fill(self, position: int, done: Done) -> None:
        for offset, lines in enumerate(done.rows):
            self.lines[position + offset] = lines
            self.held_bytes += len(lines)
        self.missing -= len(done.rows)
        self.tally.merge(done.tally)
        self.malformed += done.malformed

    def finished(self) -> Finished:
        return Finished([lines for lines in self.lines if lines is not None], self.tally, self.malformed)


class Span:
    """Rows `start` to `stop` of a batch, out with a lane or waiting. `deaths` counts the lanes that died of it."""

    def __init__(self, batch: Batch, start: int, stop: int, *, deaths: int = 0) -> None:
        self.batch = batch
        self.start = start
        self.stop = stop
        self.size = stop - start
        self.deaths = deaths

    @property
    def alone(self) -> bool:
        return self.deaths > 0

    def rows(self) -> list[Row]:
        return self.batch.rows[self.start : self.stop]

    def one_by_one(self) -> "list[Span]":
        return [Span(self.batch, row, row + 1, deaths=self.deaths + 1) for row in range(self.start, self.stop)]


class Source:
    """Where rows come from: read in batches, and never again once it has ended or failed."""

    def __init__(self, rows: Iterator[Row | None]) -> None:
        self._rows = rows
        self._error: DatasetError | None = None
        self.ended = False

    def read(self, most_rows: int) -> list[Row]:
        """Up to that many rows; fewer when they are large or come slowly, and at the end."""
        batch: list[Row] = []
        size = 0
        until = time.monotonic() + _READ_SECONDS
        try:
            while len(batch) < most_rows and size < _MOST_BATCH_BYTES and time.monotonic() < until:
                row = next(self._rows)
                if row is None:
                    return batch
                batch.append(row)
                size += len(row.text)
        except StopIteration:
            self.ended = True
        except DatasetError as error:
            self.ended, self._error = True, error
        return batch

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error
