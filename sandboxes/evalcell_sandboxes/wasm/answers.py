"""The answers of a call, read where the guest wrote them: its `answers.py` says what lies where."""

import ctypes
import os

from evalcell_sandboxes.wasm.calls import Export
from evalcell_sandboxes.wasm.memory import LinearMemory

SIZE = 256 * 1024
_HEADER = 16
_MARK_BYTES = 16
_BUFFER_POINTER = 20
"""Where in a `bytearray` of a 32-bit CPython the pointer to its contents is."""


class Answers:
    """What the guest says while it runs. It is the guest's word, and every number in it is held to its bounds."""

    def __init__(self, address: int) -> None:
        self._contents = address + _HEADER
        self._done, self._stop, self._used = (ctypes.c_uint32.from_address(address + 4 * word) for word in range(3))

    @classmethod
    def find(cls, answers_at: Export, memory: LinearMemory) -> "Answers | None":
        """Has the guest write a mark, and looks for it. None where an instance's memory cannot be found."""
        mark = os.urandom(_MARK_BYTES // 2).hex().encode()
        place = answers_at(mark)
        address = memory.find(int(place) + _BUFFER_POINTER, mark)
        if address is None:
            return None
        ctypes.memset(address, 0, _MARK_BYTES)
        return cls(address)

    def reset(self) -> None:
        """Forgets the last call: until the guest begins, its answers would pass for this one's."""
        self._done.value = self._stop.value = self._used.value = 0

    def done(self) -> int:
        """How many rows of the call are done."""
        return self._done.value

    def stop(self) -> None:
        """Has the guest come back after the row that it is at."""
        self._stop.value = 1

    def text(self) -> bytes:
        """The reports of the rows that are done, each ended by a line feed. What no line feed ends is none."""
        text = ctypes.string_at(self._contents, min(max(self._used.value - _HEADER, 0), SIZE - _HEADER))
        return text[: text.rfind(b"\n") + 1]
