"""The pages of another process that are known to be written to, what was in them, and how others are found out."""

import array
import bisect
import os
import re

import kernel

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_PAGES = 8192
"""As many are saved at most: they are kept in the supervisor's memory."""
_MANY_PAGES = 256
"""More than these a row seldom writes to that others did not. If it stays alone with them, they are not put back for all."""
_MOST_MAPPED_PAGES = 1 << 20
_PAGES_A_READ = 1 << 14
_MOST_PLACES = 1024
"""So many the kernel takes in one call."""
_PRESENT, _SWAPPED, _OF_A_FILE, _ITS_OWN = 0x80, 0x40, 0x20, 0x01
"""What the uppermost byte of a page's entry in /proc/PID/pagemap says; the last, that no other process has it too."""
_ENTRY_BYTES = 8


class Unfit(Exception):
    """This memory cannot be saved, or be put back."""


class Snapshot:
    """The pages that rows are known to write to, and what was in them before a row."""

    def __init__(self) -> None:
        self._known = set()
        self._once = set()
        self._saved = frozenset()
        self._transfers = []
        self._size = 0

    def save(self, pid: int) -> None:
        """Saves what is in them. To be read this way also gives the process a copy of each to itself, as rows would."""
        if self._known != self._saved:
            self._lay_out(pid)
        self._size = _mapped(pid)
        try:
            for transfer in self._transfers:
                transfer.move(kernel.read_memory, pid)
        except (OSError, Unfit):
            self._saved = frozenset()  # so that it is found out which are there
            raise

    def _lay_out(self, pid: int) -> None:
        pages = _within(sorted(self._known), _private(pid))
        self._transfers = []
        if len(pages) > _MOST_PAGES:
            pages = []
        self._known, self._saved = set(pages), frozenset(pages)
        self._transfers = [_Transfer(runs) for runs in _in_lots(pages)]

    def has_all(self, pid: int) -> bool:
        """Whether all pages are in it that were written to. The next time they are, unless many were for the first time.

        Nor may the memory have grown, as the stack does where it is only read.
        """
        written = set(_written(pid))
        new = written - self._saved
        if self._known and len(new) > _MANY_PAGES:
            new, self._once = new & self._once, new
        self._known |= new
        return written <= self._saved and _mapped(pid) == self._size

    def put_back(self, pid: int) -> None:
        for transfer in self._transfers:
            transfer.move(kernel.write_memory, pid)


class _Transfer:
    """Some pages of another process, and room for them here."""

    def __init__(self, runs: list) -> None:
        self._size = sum(size for _, size in runs)
        self._room = array.array("B", [0]) * self._size
        self._here = array.array("Q", [self._room.buffer_info()[0], self._size])
        self._there = array.array("Q", [number for run in runs for number in run])

    def move(self, move, pid: int) -> None:
        if move(pid, self._here, self._there) != self._size:
            raise Unfit


def _in_lots(pages: list):
    """Pages as runs of neighbours, an address and a size, as many together as the kernel takes."""
    runs = []
    for page in pages:
        if runs and sum(runs[-1]) == page:
            runs[-1][1] += _PAGE_BYTES
        else:
            runs.append([page, _PAGE_BYTES])
    for at in range(0, len(runs), _MOST_PLACES):
        yield runs[at : at + _MOST_PLACES]


def _within(pages: list, bounds: list) -> list:
    """The pages that are mapped. A row that needs much of the stack has it grow, which a new keeper's has not."""
    find = bisect.bisect_left
    return [page for start, end in bounds for page in pages[find(pages, start) : find(pages, end)]]


def _private(pid: int):
    """The memory of a process that becomes its own where it is written to, as bounds; neighbours joined."""
    found = []
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            place, rights, _, _, _, *name = line.split(maxsplit=5)
            if rights[3:4] == b"p" and rights != b"---p" and not (name and name[0].startswith((b"[v", b"[uprobes"))):
                start, end = (int(bound, 16) for bound in place.split(b"-"))
                if found and found[-1][1] == start:
                    found[-1][1] = end
                else:
                    found.append([start, end])
    return found


def _mapped(pid: int) -> int:
    """How much memory a process has mapped. Without a call, only the stack grows."""
    with open(f"/proc/{pid}/statm", "rb") as sizes:
        return int(sizes.read().split()[0])


def _written(pid: int):
    """The addresses of pages that a process has to itself."""
    bounds = _private(pid)
    if sum(end - start for start, end in bounds) > _MOST_MAPPED_PAGES * _PAGE_BYTES:
        raise Unfit
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for start, end in bounds:
            for page in range(start // _PAGE_BYTES, end // _PAGE_BYTES, _PAGES_A_READ):
                count = min(_PAGES_A_READ, end // _PAGE_BYTES - page)
                entries = os.pread(pagemap.fileno(), count * _ENTRY_BYTES, page * _ENTRY_BYTES)
                for found in _ENTRY_OF_WRITTEN.finditer(entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]):
                    yield (page + found.start()) * _PAGE_BYTES


def _is_written(entry: int) -> bool:
    return bool(entry & _SWAPPED) or entry & (_PRESENT | _OF_A_FILE | _ITS_OWN) == _PRESENT | _ITS_OWN


_ENTRY_OF_WRITTEN = re.compile(b"[%b]" % b"".join(rb"\x%02x" % entry for entry in range(256) if _is_written(entry)))
