"""The rows that an evaluator is fitted on: the first of the dataset, kept so that every lane gets the same ones."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from types import TracebackType

import msgspec

from evalcell.datasets import Row
from evalcell.errors import DatasetError
from evalcell.spool import Spool

MOST_BYTES = 1024**3
_CHUNK_ROWS = 1_000
_CHUNK_BYTES = 1024**2
_PATIENCE_SECONDS = 0.5
"""How long rows may take to come before somebody is told that they are waited for."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Row]).decode


class FirstRows(AbstractContextManager["FirstRows"]):
    """The first rows of a dataset, taken off its front. `chain` puts them back."""

    def __init__(self) -> None:
        self._spool = Spool()
        self._chunk: list[Row] = []
        self._chunk_bytes = 0
        self.count = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.__exit__(kind, error, trace)

    def take(
        self,
        rows: Iterator[Row | None],
        most: int,
        waiting: Callable[[int], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> Iterator[Row | None]:
        """Takes that many rows, or all if there are fewer, and gives an iterator over all rows, these first.

        `waiting` is told how many there are while they are long in coming; `cancelled` says when to take no more. A
        dataset that cannot be read so far raises here, before anything runs: scores after a fit on fewer rows would be
        other scores.

        Raises:
            DatasetError: They cannot be read, or are too large to be kept.
        """
        said = time.monotonic()
        while self.count < most and not cancelled():
            try:
                row = next(rows)
            except StopIteration:
                break
            if row is not None:
                self._keep(row)
            if time.monotonic() - said > _PATIENCE_SECONDS:
                waiting(self.count)
                said = time.monotonic()
        self._write_chunk()
        return chain(chain.from_iterable(self.chunks()), rows)

    def chunks(self) -> Iterator[list[Row]]:
        """The rows again, some at a time."""
        return map(_decode, self._spool.pieces())

    def _keep(self, row: Row) -> None:
        self._chunk.append(row)
        self._chunk_bytes += len(row.text)
        self.count += 1
        if self._spool.size_bytes + self._chunk_bytes > MOST_BYTES:
            raise DatasetError(
                f"The first {self.count:,} rows have more than {MOST_BYTES // 1024**2:,} MiB, too many to fit on. "
                "Fit on fewer with --fit-rows N."
            )
        if len(self._chunk) >= _CHUNK_ROWS or self._chunk_bytes >= _CHUNK_BYTES:
            self._write_chunk()

    def _write_chunk(self) -> None:
        if self._chunk:
            self._spool.append(_encode(self._chunk))
            self._chunk, self._chunk_bytes = [], 0
