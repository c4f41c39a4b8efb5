"""Finds the pages of this process that are copies of its own, made by the kernel at the first write to them."""

import ctypes
import fcntl
import mmap
import os
from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

PAGE = mmap.PAGESIZE

_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61
_ENTRY_BYTES = 8

# The ioctl PAGEMAP_SCAN of Linux 6.7, which walks page tables in the kernel and gives ranges.
_SCAN_FILE, _SCAN_PRESENT, _SCAN_SWAPPED = 1 << 2, 1 << 3, 1 << 4
_SCAN_RANGES = 1024


class Range(NamedTuple):
    """So many bytes from that address, whole pages."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class _ScanRange(ctypes.Structure):
    _fields_ = (("start", ctypes.c_uint64), ("end", ctypes.c_uint64), ("categories", ctypes.c_uint64))


class _Scan(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
            "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
        )
    )  # fmt: skip


_PAGEMAP_SCAN = 3 << 30 | ctypes.sizeof(_Scan) << 16 | ord("f") << 8 | 16


class Pagemap:
    """Reads `/proc/self/pagemap`, by the quickest way that the kernel has.

    Raises:
        OSError: It cannot be read here.
    """

    def __init__(self) -> None:
        self._file = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self._found = (_ScanRange * _SCAN_RANGES)()
        self.written: Callable[[Range], list[Range]] = self._scan
        """The pages in a range that are copies, present or swapped out, as ranges in order."""
        probe = mmap.mmap(-1, PAGE)
        here = Range(ctypes.addressof(ctypes.c_char.from_buffer(probe)), PAGE)
        try:
            self._scan(here)
        except OSError:
            self.written = self._read

    def close(self) -> None:
        os.close(self._file)

    def _scan(self, where: Range) -> list[Range]:
        pages: list[Range] = []
        start = where.start
        while start < where.end:
            question = _Scan(
                size=ctypes.sizeof(_Scan),
                start=start,
                end=where.end,
                vec=ctypes.addressof(self._found),
                vec_len=_SCAN_RANGES,
                category_inverted=_SCAN_FILE,
                category_mask=_SCAN_FILE,
                category_anyof_mask=_SCAN_PRESENT | _SCAN_SWAPPED,
                return_mask=_SCAN_PRESENT | _SCAN_SWAPPED,
            )
            count = fcntl.ioctl(self._file, _PAGEMAP_SCAN, question)
            pages += [Range(found.start, found.end - found.start) for found in self._found[:count]]
            # Where the last range just fits, the kernel says that it stopped before it, and would give it once more.
            start = max(question.walk_end, pages[-1].end if count else 0)
        return joined(pages)

    def _read(self, where: Range) -> list[Range]:
        entries = array("Q")
        entries.frombytes(os.pread(self._file, where.size // PAGE * _ENTRY_BYTES, where.start // PAGE * _ENTRY_BYTES))
        return joined(
            Range(where.start + number * PAGE, PAGE)
            for number, entry in enumerate(entries)
            if entry & _SWAPPED or entry & (_PRESENT | _OF_FILE) == _PRESENT
        )


def joined(ranges: Iterable[Range], *, gap: int = 0) -> list[Range]:
    """Ranges in order, with those that touch made one; and those with no more than a gap between them."""
    whole: list[Range] = []
    for some in ranges:
        if whole and some.start - whole[-1].end <= gap:
            whole[-1] = Range(whole[-1].start, some.end - whole[-1].start)
        else:
            whole.append(some)
    return whole
