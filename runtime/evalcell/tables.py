"""Records as tables of other libraries, where those are installed: Arrow, pandas, polars.

Two columns differ from a record: `id` is always text, and `metadata`, which may hold anything, is JSON text.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from evalcell.errors import UsageError
from evalcell.records import Record

_BATCH_RECORDS = 10_000


def to_arrow(records: Iterable[Record]) -> Any:
    """A `pyarrow.Table`, with the same columns and types however many records there are.

    Raises:
        UsageError: pyarrow is not installed.
    """
    pyarrow = _package("pyarrow")
    schema = _schema(pyarrow)
    batches = (pyarrow.RecordBatch.from_pylist(some, schema=schema) for some in _batches(records))
    return pyarrow.Table.from_batches(batches, schema=schema)


def to_pandas(records: Iterable[Record]) -> Any:
    """A `pandas.DataFrame`.

    Raises:
        UsageError: pandas or pyarrow is not installed.
    """
    _package("pandas")
    return to_arrow(records).to_pandas()


def to_polars(records: Iterable[Record]) -> Any:
    """A `polars.DataFrame`.

    Raises:
        UsageError: polars or pyarrow is not installed.
    """
    return _package("polars").from_arrow(to_arrow(records))


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        wanted = "'evalcell[arrow]'" if name == "pyarrow" else name
        raise UsageError(f"This needs {name}. Install it with: pip install {wanted}") from None


def _batches(records: Iterable[Record]) -> Iterator[list[dict[str, Any]]]:
    remaining = iter(records)
    while some := [_values(record) for record in islice(remaining, _BATCH_RECORDS)]:
        yield some


def _values(record: Record) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(record)
    values["id"] = str(record.id)
    if record.metadata is not None:
        values["metadata"] = msgspec.json.encode(record.metadata).decode()
    return values


def _schema(pyarrow: Any) -> Any:
    text, number = pyarrow.string(), pyarrow.float64()
    error = {"kind": text, "message": text, "traceback": text, "limit": text}
    usage = {"wall_seconds": number, "cpu_seconds": number, "memory_bytes": pyarrow.int64()}
    columns = {
        "row": pyarrow.int64(),
        **dict.fromkeys(("id", "evaluator", "name", "version", "sandbox", "status"), text),
        "score": number,
        "label": text,
        "passed": pyarrow.bool_(),
        "explanation": text,
        "metadata": text,
        "error": pyarrow.struct(error),
        "stdout": text,
        "stderr": text,
        "usage": pyarrow.struct(usage),
    }
    assert tuple(columns) == Record.__struct_fields__
    return pyarrow.schema(columns)
