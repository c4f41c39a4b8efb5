"""How large an instance's memory has grown, which wasmtime's component API does not tell.

On Linux the memory is the readable mapping directly before the guard region of more than 4 GiB that wasmtime
reserves for every instance. Elsewhere nothing is known, and usage says so.
"""

import ctypes
import os
import re
import sys
from pathlib import Path

_GUARD_BYTES = 1 << 31
_MAPS = Path("/proc/self/maps")
_MAPPING = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ", re.MULTILINE)


class _Range(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class LinearMemory:
    """Follows the one instance that this process holds at a time. Memory never shrinks: its size is its peak."""

    def __init__(self) -> None:
        self._base = 0
        self._known_bytes = 0
        self._moved = True
        self._probe = _ReadProbe() if sys.platform == "linux" else None

    def bytes(self) -> int | None:
        """The size of the instance's memory now."""
        if self._probe is None:
            return None
        if self._moved:
            # A new instance mostly lies where the one before it lay: its last byte is there to be read.
            self._moved = not (self._known_bytes and self._probe.readable(self._base + self._known_bytes - 1))
        if self._moved or self._probe.readable(self._base + self._known_bytes):
            self._locate()
            self._moved = False
        return self._known_bytes or None

    def forget(self) -> None:
        """A new instance was made: it may lie elsewhere."""
        self._moved = True

    def _locate(self) -> None:
        mappings = [(int(a, 16), int(b, 16), mode) for a, b, mode in _MAPPING.findall(_MAPS.read_bytes())]
        self._base = self._known_bytes = 0
        for guard in range(len(mappings) - 1, 0, -1):
            start, end, mode = mappings[guard]
            if mode == b"---p" and end - start >= _GUARD_BYTES and mappings[guard - 1][1] == start:
                first = guard - 1
                while first and mappings[first - 1][1] == mappings[first][0] and mappings[first - 1][2] == b"rw-p":
                    first -= 1
                self._base, self._known_bytes = mappings[first][0], start - mappings[first][0]
                return


class _ReadProbe:
    """Asks the kernel whether an address of this process can be read, without touching it."""

    def __init__(self) -> None:
        self._read = ctypes.CDLL(None, use_errno=True).process_vm_readv
        self._buffer = ctypes.create_string_buffer(1)
        self._here = _Range(ctypes.addressof(self._buffer), 1)
        self._there = _Range(0, 1)
        self._arguments = (os.getpid(), ctypes.byref(self._here), 1, ctypes.byref(self._there), 1, 0)

    def readable(self, address: int) -> bool:
        self._there.base = address
        return bool(self._read(*self._arguments) == 1)
