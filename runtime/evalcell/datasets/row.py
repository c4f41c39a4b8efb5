"""A row on its way to a lane."""

from msgspec import Struct

MOST_BYTES = 64 * 1024**2
"""How large one row may be. What is larger than this is mostly a quote or a bracket that was never closed."""


class Row(Struct, frozen=True):
    """One row: its index among the rows, the line it began on (None where there are no lines), and its JSON text.

    `problem` says why there is no text, where reading the dataset already told; the row then fails alone.
    """

    index: int
    line: int | None
    text: bytes
    problem: str = ""

    def place(self) -> str:
        return f"line {self.line}" if self.line is not None else f"row {self.index}"
