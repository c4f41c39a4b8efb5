"""Captures what a row prints, up to a limit, so that prints never mix with results."""

import io
import sys


class Capture(io.BufferedIOBase):
    """Keeps the first `limit` bytes written to it and counts the rest."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._kept = bytearray()
        self._dropped = 0

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:
        size = len(data)
        room = self._limit - len(self._kept)
        if room > 0:
            self._kept += bytes(data[:room])
        self._dropped += max(0, size - room)
        return size

    def take(self) -> str:
        """What was written since the last call."""
        if not self._kept:
            return ""
        text = self._kept.decode("utf-8", "backslashreplace")
        if self._dropped:
            text += f"\n[{self._dropped} more bytes were dropped: the limit is {self._limit}]"
        self._kept, self._dropped = bytearray(), 0
        return text


class Streams:
    """`sys.stdout`, `sys.stderr` and an empty `sys.stdin` for user code."""

    def __init__(self, stdout_bytes: int, stderr_bytes: int) -> None:
        self._stdout, self._stderr = Capture(stdout_bytes), Capture(stderr_bytes)
        self._texts = (self._text(self._stdout), self._text(self._stderr))
        self._stdin = io.StringIO("")

    @staticmethod
    def _text(capture: Capture) -> io.TextIOWrapper:
        return io.TextIOWrapper(capture, encoding="utf-8", errors="backslashreplace", write_through=True)

    def install(self) -> None:
        """Points the interpreter's streams here. A row may have replaced or closed them, so before every row."""
        if self._texts[0].closed or self._texts[1].closed:
            self._texts = (self._text(self._stdout), self._text(self._stderr))
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__ = self._texts
        sys.stdin = sys.__stdin__ = self._stdin

    def take(self) -> tuple[str, str]:
        return self._stdout.take(), self._stderr.take()
