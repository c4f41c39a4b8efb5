"""Where a row's prints go: files without a name that the supervisor can read too, so that a crash loses none of them.

They are the descriptors 1 and 2 of the process, so whatever bypasses `sys.stdout` ends up in the same place.
"""

import io
import os
import sys

_CHUNK = 1 << 16


class Print(io.RawIOBase):
    """Writes the first `limit` bytes to a descriptor and counts the rest."""

    def __init__(self, descriptor: int, limit: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._limit = limit
        self._written = self._dropped = 0

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Does nothing: code that wraps, replaces or closes its standard streams must not lose its prints for it."""

    def write(self, data) -> int:
        data = bytes(data)
        kept = data[: max(0, self._limit - self._written)]
        self._written += len(kept)
        self._dropped += len(data) - len(kept) + self._lost(kept)
        return len(data)

    def _lost(self, kept: bytes) -> int:
        """Writes, and says how much of it found no room."""
        try:
            while kept:
                kept = kept[os.write(self._descriptor, kept) :]
        except OSError:  # the code has closed it, or filled up /tmp
            return len(kept)
        return 0

    def take(self) -> bytes:
        """What was written since the last call, by whatever way, and how much was too much."""
        try:
            size = os.fstat(self._descriptor).st_size
            if not size and not self._dropped:
                return b""
            text = os.pread(self._descriptor, self._limit, 0)
            dropped = self._dropped + size - len(text)
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        except OSError:  # the code has closed it, or put a pipe or a device in its place
            return b""
        self._written = self._dropped = 0
        return text + note(dropped, self._limit)


def note(dropped: int, limit: int) -> bytes:
    return b"\n[%d more bytes were dropped: the limit is %d]" % (dropped, limit) if dropped > 0 else b""


class Streams:
    """`sys.stdout`, `sys.stderr` and an empty `sys.stdin` for user code."""

    def __init__(self, stdout_bytes: int, stderr_bytes: int) -> None:
        self.stdout, self.stderr = Print(1, stdout_bytes), Print(2, stderr_bytes)
        self._stdin = io.StringIO("")
        self._texts = ()

    def install(self) -> None:
        """Points the interpreter's streams here. A row may have replaced or detached them, so before every row."""
        try:
            stdout, stderr = self._texts
            whole = stdout.buffer is self.stdout and stderr.buffer is self.stderr
        except ValueError:  # detached, or not made yet
            whole = False
        if not whole:
            self._texts = stdout, stderr = _text(self.stdout), _text(self.stderr)
        sys.stdout = sys.__stdout__ = stdout
        sys.stderr = sys.__stderr__ = stderr
        sys.stdin = sys.__stdin__ = self._stdin

    def take(self) -> tuple:
        return self.stdout.take(), self.stderr.take()


def _text(raw: Print) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
