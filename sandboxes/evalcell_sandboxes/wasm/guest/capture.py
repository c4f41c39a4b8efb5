"""Captures what a row prints, up to a limit, so that prints never mix with results."""

import io
import sys


class Capture(io.BufferedIOBase):
    """Keeps the first `limit` bytes written to it and counts the rest."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self.kept = bytearray()
        self._dropped = 0

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Does nothing: code that wraps, replaces or closes its standard streams must not lose its prints for it."""

    def write(self, data) -> int:
        size = len(data)
        room = self._limit - len(self.kept)
        if room > 0:
            self.kept += bytes(data[:room])
        self._dropped += max(0, size - room)
        return size

    def take(self) -> str:
        """What was written since the last call."""
        if not self.kept:
            return ""
        text = self.kept.decode("utf-8", "backslashreplace")
        if self._dropped:
            text += f"\n[{self._dropped} more bytes were dropped: the limit is {self._limit}]"
        self.kept, self._dropped = bytearray(), 0
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
        """Points the interpreter's streams here. A row may have replaced or detached them, so before every row."""
        stdout, stderr = self._texts
        try:
            whole = stdout.buffer is self._stdout and stderr.buffer is self._stderr
        except ValueError:  # detached
            whole = False
        if not whole:
            stdout, stderr = self._texts = (self._text(self._stdout), self._text(self._stderr))
        now = sys.__dict__.get
        if now("stdout") is not stdout or now("stderr") is not stderr or now("stdin") is not self._stdin:
            sys.stdout = sys.__stdout__ = stdout
            sys.stderr = sys.__stderr__ = stderr
            sys.stdin = sys.__stdin__ = self._stdin

    def silent(self) -> bool:
        return not (self._stdout.kept or self._stderr.kept)

    def take(self) -> tuple[str, str]:
        return self._stdout.take(), self._stderr.take()
