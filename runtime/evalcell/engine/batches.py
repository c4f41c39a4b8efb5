"""Rows on their way through the engine: read in batches, out with lanes in spans, given out when they are finished."""

import time
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.tally import Tally

_MOST_BATCH_BYTES = 1024**2
_READ_SECONDS = 0.1
_SLOW_SECONDS = 0.02


class Finished(NamedTuple):
    """Rows that are done, in order: the record lines of each, what they add to the tally, which were malformed, and
    what `aggregate` will be given of each, if there is one.
    """

    rows: list[bytes]
    tally: Tally
    malformed: list[str]
    results: list[bytes]


class Batch:
    """Rows that were read together, with what has come back of them."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.lines: list[bytes | None] = [None] * len(rows)
        self._results: dict[int, bytes] = {}
        self.held_bytes = 0
        self._given = 0
        self._tally = Tally()
        self._malformed: list[str] = []

    @property
    def is_given(self) -> bool:
        """Whether all of it has been given out."""
        return self._given == len(self.rows)

    def fill(self, position: int, done: Done) -> None:
        self.lines[position : position + len(done.rows)] = done.rows
        self._results.update(enumerate(done.results, position))
        self.held_bytes += sum(map(len, done.rows)) + sum(map(len, done.results))
        self._tally.merge(done.tally)
        self._malformed += done.malformed

    def take(self) -> Finished | None:
        """What has come back since the last time, as far as no row before it is missing; None where nothing has."""
        rows = [lines for lines in takewhile(lambda lines: lines is not None, self.lines[self._given :]) if lines]
        if not rows:
            return None
        results = (
            [self._results.pop(row) for row in range(self._given, self._given + len(rows))] if self._results else []
        )
        self._given += len(rows)
        self.held_bytes -= sum(map(len, rows)) + sum(map(len, results))
        finished = Finished(rows, self._tally, self._malformed, results)
        self._tally, self._malformed = Tally(), []
        return finished


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
        self._error: Exception | None = None
        self.ended = False
        self.slow = False
        """Whether the last rows were long in coming."""

    def read(self, most_rows: int) -> list[Row]:
        """Up to that many rows; fewer when they are large or come slowly, and at the end."""
        batch: list[Row] = []
        size = 0
        started = time.monotonic()
        until = started + _READ_SECONDS
        try:
            while len(batch) < most_rows and size < _MOST_BATCH_BYTES and time.monotonic() < until:
                row = next(self._rows)
                if row is None:
                    return batch
                batch.append(row)
                size += len(row.text)
        except StopIteration:
            self.ended = True
        except Exception as error:  # noqa: BLE001 - rows may come from a user's own generator
            self.ended, self._error = True, error
        finally:
            self.slow = time.monotonic() - started > _SLOW_SECONDS
        return batch

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error
