"""Rows on their way into a sandbox that reads them line by line."""

from collections.abc import Iterable, Sequence

from evalcell_sandboxes.sandbox import Raw

_MOST_BYTES = 4 * 1024**2


def lines(rows: Iterable[Raw]) -> bytes:
    """The rows with a line feed between them, and none inside: in JSON it is nothing but space."""
    return b"\n".join(row.replace(b"\n", b" ") for row in rows)


def as_many_as_travel(rows: Sequence[Raw], start: int, most: int) -> Sequence[Raw]:
    """The rows from there on, as many as are sent together."""
    size = 0
    for stop in range(start, min(len(rows), start + most)):
        size += len(rows[stop])
        if size > _MOST_BYTES:
            return rows[start : max(stop, start + 1)]
    return rows[start : start + most]
