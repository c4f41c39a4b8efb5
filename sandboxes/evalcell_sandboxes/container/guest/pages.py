"""Joins the pages of this process into large ones: a fork copies the list of pages, which is then much shorter.

It is a hint. Where the kernel knows nothing of it, or has no large page to give, everything stays as it is.
"""

import contextlib
import ctypes
import mmap
import os
import time

_MADV_COLLAPSE = 25
_LARGE_BYTES = 2 * 1024 * 1024
_PAGES = _LARGE_BYTES // mmap.PAGESIZE
_MOST_SECONDS = 2.0
"""How long to go on. It takes 2 to 3 ms for each MB, and counts as time that the module takes to load."""
_FULL = 0.75
"""How many of its pages must be in use. Joining fills the gaps, and a program may have reserved more than it uses."""

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
_used = ctypes.create_string_buffer(_PAGES)


def join() -> None:
    """Joins what this process has in memory, as far as it fills large pages. Children of it would keep their copy."""
    until = time.monotonic() + _MOST_SECONDS
    with contextlib.suppress(Exception):  # a hint is not worth a module that could not be loaded for it
        if _has_children():
            return
        for start in _large_pages():
            if time.monotonic() > until:
                return
            if _libc.mincore(start, _LARGE_BYTES, _used) == 0 and _used.raw.count(1) >= _FULL * _PAGES:
                _libc.madvise(start, _LARGE_BYTES, _MADV_COLLAPSE)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _large_pages():
    """Where they would begin, in the memory of allocators, of which each fork gets a copy."""
    with open("/proc/self/maps", "rb") as maps:
        lines = [line.split() for line in maps]
    for place, rights, _, _, _, *name in lines:
        if rights == b"rw-p" and name in ([], [b"[heap]"]):
            start, end = (int(bound, 16) for bound in place.split(b"-"))
            yield from range(-(-start // _LARGE_BYTES) * _LARGE_BYTES, end - _LARGE_BYTES + 1, _LARGE_BYTES)
