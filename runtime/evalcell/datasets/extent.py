"""How much of a dataset its first rows are, for whoever shows progress."""

from bisect import bisect_right


class Extent:
    """Marks where reading stood, and reckons between the marks. Positions are bytes of a file, or rows."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._rows = [0]
        self._positions = [0]

    @classmethod
    def of_rows(cls, count: int) -> "Extent":
        """For a dataset of which it is known how many rows it has."""
        extent = cls(count)
        extent.mark(count, count)
        return extent

    def mark(self, rows: int, position: int) -> None:
        """Says that the first so many rows end at that position."""
        if rows > self._rows[-1]:
            self._positions.append(position)  # first, for whoever reads along in another thread
            self._rows.append(rows)

    def fraction(self, rows: int) -> float:
        """The part of the whole that so many rows are."""
        after = min(bisect_right(self._rows, rows), len(self._rows) - 1)
        if after == 0 or self._size == 0:
            return 0.0
        before = after - 1
        part = (rows - self._rows[before]) / (self._rows[after] - self._rows[before])
        reached = self._positions[before] + part * (self._positions[after] - self._positions[before])
        return min(1.0, reached / self._size)
