"""Joins the pages of this process into large ones: a fork copies the list of pages, which is then much shorter.

It is a hint. Where the kernel knows nothing of it, or has no large page to give, everything stays as it is.
"""

import contextlib
import ctypes

_MADV_COLLAPSE = 25
_LARGE_BYTES = 2 * 1024 * 1024
_FULL = 0.9
"""How much of a mapping must be in use: joining fills the gaps, and a program may have reserved more than it uses."""

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


def join() -> None:
    """Joins this process's own memory, as far as it lies in whole large pages."""
    for start, end in _own_memory():
        first, last = -(-start // _LARGE_BYTES) * _LARGE_BYTES, end // _LARGE_BYTES * _LARGE_BYTES
        if first < last:
            _madvise(first, last - first, _MADV_COLLAPSE)


def _own_memory() -> list:
    """Where the memory of allocators begins and ends, of which each fork gets a copy."""
    found, place = [], None
    with contextlib.suppress(OSError, ValueError), open("/proc/self/smaps", "rb") as lines:
        for line in lines:
            key, *words = line.split()
            if b"-" in key:
                ours = words[0] == b"rw-p" and words[4:] in ([], [b"[heap]"])
                place = [int(end, 16) for end in key.split(b"-")] if ours else None
            elif key == b"Rss:" and place and int(words[0]) * 1024 >= _FULL * (place[1] - place[0]):
                found.append(place)
    return found
