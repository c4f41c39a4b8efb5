"""Captures what a row prints, up to a limit, so that prints never mix with results."""

import io
import sys


class Capture(io.BufferedIOBase):
    """Keeps the first `limit` bytes written to it and counts the rest."""

    def __init__(self, limit: int, streams: "Streams") -> None:
        super().__init__()
        self._limit = limit
        self._streams = streams
        self._kept = bytearray()
        self._dropped = 0

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: code that wraps, replaces or closes its standard streams must not lose its prints for it."""

    def write(self, data) -> int:
        size = len(data)
        room = self._limit - len(self._kept)
        if room > 0:
            self._kept += bytes(data[:room])
        self._dropped += max(0, size - room)
        self._streams.printed = True
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
        self.stdout, self.stderr = Capture(stdout_bytes, self), Capture(stderr_bytes, self)
        self.printed = False
        self._stdin = io.StringIO("")
        self._make_texts()

    def _make_texts(self) -> None:
        self._stdout_text, self._stderr_text = _text(self.stdout), _text(self.stderr)

    def install(self) -> None:
        """Points the interpreter's streams here. A row may have replaced or detached them, so before every row."""
        try:
            stdout, stderr = self._stdout_text, self._stderr_text
            whole = stdout.buffer is self.stdout and stderr.buffer is self.stderr
            if whole and sys.stdout is stdout and sys.stderr is stderr and sys.stdin is self._stdin:
                return
        except (ValueError, AttributeError):  # detached, or deleted
            whole = False
        if not whole:
            self._make_texts()
        sys.stdout = sys.__stdout__ = self._stdout_text
        sys.stderr = sys.__stderr__ = self._stderr_text
        sys.stdin = sys.__stdin__ = self._stdin

    def take(self) -> tuple[str, str]:
        self.printed = False
        return self.stdout.take(), self.stderr.take()


def _text(capture: Capture) -> io.TextIOWrapper:
    return io.TextIOWrapper(capture, encoding="utf-8", errors="backslashreplace", write_through=True)
