"""A row on its way to a lane."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

MOST_BYTES = 64 * 1024**2
"""How large one row may be. What is larger than this is mostly a quote or a bracket that was never closed."""
MOST_TEXT = f"{MOST_BYTES // 1024**2} MiB"


class Row(Struct, frozen=True, gc=False, array_like=True):
    """One row: its index among the rows, the line it began on (None where there are no lines), and its JSON text.

    `problem` says why there is no text, where reading the dataset already told; the row then fails alone.
    """

    index: int
    line: int | None
    text: bytes
    problem: str = ""

    def place(self) -> str:
        return f"line {self.line}" if self.line is not None else f"row {self.index}"


def first_twice(names: Iterable[str]) -> str | None:
    """The first name that is there more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
