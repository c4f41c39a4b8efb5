"""Rows out of Arrow data: Parquet files, and the tables and data frames of other libraries.

Columns keep their types as far as JSON has them; structs and maps are objects.
"""

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from evalcell.datasets.row import Row, first_twice
from evalcell.datasets.values import row_of
from evalcell.errors import DatasetError

if TYPE_CHECKING:
    import pyarrow

_BATCH_ROWS = 256


def _import_pyarrow(purpose: str) -> Any:
    """The `pyarrow` package.

    Raises:
        DatasetError: It is not installed; the message says how to get it.
    """
    try:
        import pyarrow as package
    except ImportError:
        raise DatasetError(f"{purpose} needs pyarrow. Install it with: pip install 'evalcell[arrow]'") from None
    return package


class Parquet:
    """A Parquet file, read one row group at a time."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        pyarrow = _import_pyarrow(f"Reading the Parquet file {name}")
        from pyarrow.parquet import ParquetFile

        self._name = name
        self._errors = (pyarrow.ArrowException, OSError)
        self._read = 0
        try:
            self._file = ParquetFile(file, pre_buffer=False)
        except self._errors as error:
            raise self._damaged(error) from None
        self.count: int = self._file.metadata.num_rows

    def rows(self) -> Iterator[Row]:
        _check_columns(self._file.schema_arrow.names, self._name)
        batches = self._file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False)
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except self._errors as error:
                raise self._damaged(error) from None
            start, self._read = self._read, self._read + batch.num_rows
            yield from _rows_of(batch, start)

    def _damaged(self, error: Exception) -> DatasetError:
        where = f" after row {self._read - 1}" if self._read else ""
        return DatasetError(f"The Parquet file {self._name} cannot be read{where}: {error}")


def stream_rows(data: object, name: str) -> Iterator[Row]:
    """The rows of anything that gives out an Arrow stream: pyarrow and polars tables, pandas data frames."""
    pyarrow = _import_pyarrow(f"Reading {name}")
    try:
        reader = pyarrow.RecordBatchReader.from_stream(data)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise DatasetError(f"{name.capitalize()} cannot be read as a table: {error}") from None
    _check_columns(reader.schema.names, name)
    start = 0
    for table in reader:
        for offset in range(0, table.num_rows, _BATCH_ROWS):
            batch = table.slice(offset, _BATCH_ROWS)
            yield from _rows_of(batch, start)
            start += batch.num_rows


def _check_columns(names: list[str], name: str) -> None:
    if (twice := first_twice(names)) is not None:
        raise DatasetError(f"The dataset {name} has two columns named {twice!r}.")


def _rows_of(batch: "pyarrow.RecordBatch", start: int) -> Iterator[Row]:
    try:
        values = batch.to_pylist(maps_as_pydicts="strict")
    except Exception:  # noqa: BLE001 - one odd value spoils the batch, and pyarrow has no common error for it
        for offset in range(batch.num_rows):
            yield _odd_row(batch.slice(offset, 1), start + offset)
        return
    for offset, value in enumerate(values):
        yield row_of(value, start + offset)


def _odd_row(batch: "pyarrow.RecordBatch", index: int) -> Row:
    try:
        return row_of(batch.to_pylist(maps_as_pydicts="strict")[0], index)
    except Exception as error:  # noqa: BLE001
        return Row(index, None, b"", f"holds a value that cannot be carried: {error}")
