"""Where an instance's memory lies in this process, and how large it is, which wasmtime's component API does not tell.

On Linux the memory is the readable and writable mappings directly before the guard region of more than 2 GiB that
wasmtime reserves for every instance. There may be several instances: the right memory is the one in which a mark is
found that the guest was asked to write. Elsewhere nothing is known, and usage says so.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from evalcell_sandboxes.wasm.pagemap import Range

_GUARD_BYTES = 1 << 31
_POINTER_BYTES = 4
_MOST_READ_BYTES = 64
_MAPS = Path("/proc/self/maps")
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ", re.MULTILINE)


class LinearMemory:
    """Follows one instance at a time. Memory never shrinks: its size is its peak."""

    def __init__(self) -> None:
        self.where: Range | None = None
        """Where the memory was when it was last looked at."""
        self._initial_bytes = 0
        self._reader = _Reader.here()

    def find(self, pointer: int, mark: bytes) -> int | None:
        """Looks for the memory in which the pointer, itself in it, leads to the mark. Gives the mark's address here."""
        if self._reader is None:
            return None
        for where in self._candidates():
            target = int.from_bytes(self._reader.read(where.start + pointer, _POINTER_BYTES), "little")
            address = where.start + target
            if address + len(mark) <= where.end and self._reader.read(address, len(mark)) == mark:
                self.where = where
                self._initial_bytes = self._initial_bytes or where.size
                return address
        self.where = None
        return None

    def look(self) -> None:
        """Finds out whether the memory has grown."""
        if self.where is not None and self._reader is not None and self._reader.read(self.where.end, 1):
            self.where = next((found for found in _memories() if found.start == self.where.start), None)

    @property
    def bytes(self) -> int | None:
        """How large the memory was when it was last looked at."""
        return None if self.where is None else self.where.size

    def _candidates(self) -> Iterator[Range]:
        """A new instance mostly lies where the one before it lay, and then all mappings need not be read."""
        last = self.where and Range(self.where.start, self._initial_bytes)
        if last and self._reader is not None and self._reader.read(last.end - 1, 1):
            yield last
        yield from _memories()


def _memories() -> Iterator[Range]:
    """Every instance's memory in this process, the latest mapping first."""
    try:
        listed = _MAPS.read_bytes()
    except OSError:
        return
    mappings = [(int(a, 16), int(b, 16), mode) for a, b, mode in _MAPPING.findall(listed)]
    for guard in range(len(mappings) - 1, 0, -1):
        start, end, mode = mappings[guard]
        if mode == b"---p" and end - start >= _GUARD_BYTES and mappings[guard - 1][1] == start:
            first = guard - 1
            while first and mappings[first - 1][1] == mappings[first][0] and mappings[first - 1][2] == b"rw-p":
                first -= 1
            yield Range(mappings[first][0], start - mappings[first][0])


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class _Reader:
    """Reads memory of this process through the kernel, which says where there is none instead of ending us."""

    def __init__(self) -> None:
        # Keeping the interpreter's lock: the call is short, and to get the lock back from another thread may not be.
        self._read = ctypes.PyDLL(None).process_vm_readv
        self._buffer = ctypes.create_string_buffer(_MOST_READ_BYTES)
        self._here = _Span(ctypes.addressof(self._buffer), 1)
        self._there = _Span(0, 1)
        self._arguments = (os.getpid(), ctypes.byref(self._here), 1, ctypes.byref(self._there), 1, 0)

    @classmethod
    def here(cls) -> "_Reader | None":
        """None where the kernel does not do it for us: then there seems to be no memory anywhere."""
        if sys.platform != "linux":
            return None
        reader = cls()
        return reader if reader.read(ctypes.addressof(reader._buffer), 1) else None

    def read(self, address: int, size: int) -> bytes:
        """What is there; nothing where not all of it can be read."""
        self._there.base, self._there.size, self._here.size = address, size, size
        return self._buffer.raw[:size] if self._read(*self._arguments) == size else b""
