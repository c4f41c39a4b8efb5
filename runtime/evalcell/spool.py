"""Bytes that are needed again later, and may be too many for memory: kept in a private file without a name."""

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from tempfile import SpooledTemporaryFile, gettempdir
from types import TracebackType

from evalcell.errors import OutputError

_IN_MEMORY_BYTES = 4 * 1024**2
_LENGTH = struct.Struct("!Q")


class Spool(AbstractContextManager["Spool"]):
    """Pieces of bytes in the order in which they came. What is small stays in memory."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by this context
        self.size_bytes = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def append(self, piece: bytes) -> None:
        """Keeps a piece behind the others.

        Raises:
            OutputError: There is no room for it.
        """
        try:
            self._file.seek(self.size_bytes)
            self._file.write(_LENGTH.pack(len(piece)) + piece)
        except OSError as error:
            raise OutputError(
                f"A temporary file in {gettempdir()!r} cannot be written: {error.strerror}. "
                "Make room there, or let TMPDIR name another directory."
            ) from None
        self.size_bytes += _LENGTH.size + len(piece)

    def pieces(self) -> Iterator[bytes]:
        """All that there is so far, from the first piece on. Several readers may take turns."""
        position = 0
        while position < self.size_bytes:
            self._file.seek(position)
            (length,) = _LENGTH.unpack(self._file.read(_LENGTH.size))
            piece = self._file.read(length)
            position += _LENGTH.size + length
            yield piece
