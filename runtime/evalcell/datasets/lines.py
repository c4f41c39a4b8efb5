"""Cuts bytes into lines as they come, looking at each byte once."""


class LineCutter:
    """Holds the line that has not ended yet, in the pieces in which it came."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.held_bytes = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that the chunk completes, without their line feeds."""
        first, *others = chunk.split(b"\n")
        if not others:
            self._hold(first)
            return []
        *whole, last = others
        lines = [self.rest() + first, *whole]
        self._hold(last)
        return lines

    def rest(self) -> bytes:
        """Takes what is held: at the end, the last line."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self.held_bytes = 0
        return rest

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self.held_bytes += len(piece)
