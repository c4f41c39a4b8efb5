"""Python values as the JSON text of a row.

Values keep their types as far as JSON has them. Decimals are numbers, times are ISO 8601 text, bytes are base64, NaN
and infinity are null; NumPy's numbers and arrays are what they hold.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from evalcell.datasets.row import MOST_BYTES, MOST_TEXT, Row


def _plain(value: Any) -> Any:
    """What the encoder does not know by itself."""
    if isinstance(value, Mapping):
        return dict(value)
    if type(value).__name__ in ("NaTType", "NAType"):  # pandas' words for nothing
        return None
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind in ("M", "m"):  # NumPy's times, which `tolist` makes numbers of
        return list(value) if value.ndim else _time(value, kind)
    for method in ("isoformat", "tolist"):  # nanosecond times are pandas' own types; `tolist` is NumPy's
        if hasattr(value, method):
            return getattr(value, method)()
    raise TypeError(f"a value of type {type(value).__name__} has no place in JSON")


def _time(value: Any, kind: str) -> Any:
    if value != value:  # noqa: PLR0124 - which only what is no time is not
        return None
    return str(value) if kind == "M" else value.astype("timedelta64[us]").item()


_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=_plain).encode


def row_of(value: Any, index: int) -> Row:
    """The value as a row; one that cannot be written as JSON carries the reason instead."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return Row(index, None, b"", f"cannot be written as JSON: {error}")
    if len(text) > MOST_BYTES:
        return Row(index, None, b"", f"is longer than {MOST_TEXT}")
    return Row(index, None, text)
