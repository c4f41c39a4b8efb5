"""Puts the memory of an instance back to what it was, in microseconds, after every row.

**Why the memory is all there is.** Between two calls no frame of the guest is on any stack, so what one row can leave
to the next lies in one of these places:

- *linear memory*: put back here, byte for byte. CPython lives in it whole: objects, modules, caches, its C stack.
- *globals and tables of the module*: the only global that the interpreter changes is the stack pointer, which every
  call that returns leaves as it found it (the adapter between two versions of WASI has three more, for calls that the
  image does not make); tables are filled when the instance is made, and nothing in the image writes to them later. A
  call that does not return, because it trapped, is the end of its instance.
- *handles of the component model* and the *host's objects*: `host.World` counts every handle that it gives and gets
  back. A row that keeps one, or holds two at a time (which could leave the free list in another order), ends its
  instance. The clock, the randomness and the numbers of handles are rewound there.
- *the size of the memory*, which never shrinks: a row that makes it grow ends its instance. There is a reserve in
  the heap, so that few rows do.

**How it is put back.** Pages that were written since the instance was made are copied to a file in memory and mapped
over themselves, privately. From then on every page has something to fall back on (that file, the compiled module's, or
zeros), and the kernel gives the process its own copy of a page at the first write to it. `MADV_DONTNEED` throws such a
copy away, and the page is as it was. But then the next row's write to it costs a page fault, and rows mostly write to
the same pages. Those, the *hot* ones, keep their copies and have their old contents copied back, all in one system
call; the rest are thrown away.

**How written pages are found.** `/proc/self/pagemap` knows which pages are copies (present and not of a file, or
swapped out), but to read it takes longer than a small row. It is read only when there can be something new in it: a
write to a page that is not hot is a page fault, and the kernel counts the faults of each thread. A row without any has
written to hot pages only. Should the count ever be wrong, the look that is taken every few thousand rows finds out,
and the run ends with an error rather than with rows that may have seen each other.

What would break this: guest code on more than one thread, a memory that is shared or not private, a guest that stays
on the stack between calls (an async export), a second memory. The image has none of them. Where `works_here` finds
that the machine does not do its part, no snapshot is taken, and every row gets an instance of its own.
"""

import ctypes
import mmap
import os
import resource
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import cache

from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.wasm.pagemap import PAGE, Pagemap, Range, joined

_MAP_FIXED = 0x10
_MADV_DONTNEED, _MADV_NOHUGEPAGE = 4, 15
_MOST_IOVECS = 1024
_GAP_BYTES = 4 * PAGE
"""Pages between two written ones that are saved with them, to have fewer mappings."""
_ROWS_TO_BE_HOT = 3
_MOST_HOT_PAGES = 2048
_ROWS_A_LOOK = 4096
"""After so many rows everything is looked at: what has gone cold is forgotten, and the count of faults is checked."""


def faults() -> int:
    """How many page faults this thread has caused so far."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_minflt + usage.ru_majflt


class Snapshot:
    """The memory of one instance as it was when this was made."""

    def __init__(self, where: Range) -> None:
        self.where = where
        self._rows = 0
        self._streaks: dict[int, int] = {}
        with ExitStack() as given_up:
            self._pagemap = Pagemap()
            given_up.callback(self._pagemap.close)
            self._hot = _HotPages([])
            given_up.callback(self._hot.close)
            _advise(where, _MADV_NOHUGEPAGE)  # else one byte written makes two megabytes of copies
            _map_copy_over(joined(self._pagemap.written(where), gap=_GAP_BYTES))
            given_up.pop_all()

    def close(self) -> None:
        """Lets go of what is kept for the memory, which itself goes with its instance."""
        self._hot.close()
        self._pagemap.close()

    def put_back(self, *, faulted: bool) -> None:
        """Makes the memory what it was. `faulted` says whether there were page faults since it was that.

        Raises:
            SandboxFault: A page was written to without a page fault, which the kernel should not allow.
        """
        self._rows += 1
        if self._rows % _ROWS_A_LOOK == 0:
            self._look(faulted=faulted)
        elif faulted:
            self._learn()
        else:
            self._hot.copy_back()

    def _learn(self) -> None:
        """Pages that were written to in several rows on end become hot; what one row or another writes to does not."""
        new = self._newly_written()
        self._hot.copy_back()
        _throw_away(new)
        self._streaks = {page: self._streaks.get(page, 0) + 1 for page in new}
        wanted = [page for page, rows in self._streaks.items() if rows >= _ROWS_TO_BE_HOT]
        if wanted and len(self._hot.pages) + len(wanted) <= _MOST_HOT_PAGES:
            self._become_hot([*self._hot.pages, *wanted])

    def _look(self, *, faulted: bool) -> None:
        """Forgets which pages are hot, and makes sure that no page was written to unnoticed."""
        new = self._newly_written()
        if new and not faulted:
            raise SandboxFault("Memory was written to without a page fault: rows may have seen each other's state.")
        self._streaks.clear()
        _throw_away([*self._hot.pages, *new])
        self._become_hot([])

    def _newly_written(self) -> list[int]:
        """The pages that are copies and not hot."""
        return [page for page in _pages(self._pagemap.written(self.where)) if page not in self._hot.pages]

    def _become_hot(self, pages: list[int]) -> None:
        """The memory is as it was: now the contents of pages are those that they will get back."""
        before, self._hot = self._hot, _HotPages(sorted(pages))
        before.close()


class _HotPages:
    """Pages that rows write to again and again, with the contents that they have now."""

    def __init__(self, pages: list[int]) -> None:
        self.pages = frozenset(pages)
        self._file = _memory_file()
        self._portions: list[tuple[int, int, list[memoryview]]] = []
        try:
            self._keep([_view(some) for some in joined(Range(page, PAGE) for page in pages)])
        except OSError:
            self.close()
            raise

    def _keep(self, views: list[memoryview]) -> None:
        offset = 0
        for first in range(0, len(views), _MOST_IOVECS):
            portion = views[first : first + _MOST_IOVECS]
            size = sum(view.nbytes for view in portion)
            _all_of(os.pwritev(self._file, portion, offset), size)
            self._portions.append((offset, size, portion))
            offset += size

    def copy_back(self) -> None:
        for offset, size, portion in self._portions:
            _all_of(os.preadv(self._file, portion, offset), size)

    def close(self) -> None:
        self._portions.clear()
        os.close(self._file)


def _map_copy_over(written: list[Range]) -> None:
    """Maps a copy of the pages over them, privately: now they are clean, and have something to fall back on."""
    file = _memory_file()
    try:
        offset = 0
        for pages in written:
            _all_of(os.pwrite(file, _view(pages), offset), pages.size)
            rights, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
            if _libc().mmap(pages.start, pages.size, rights, kind, file, offset) != pages.start:
                raise OSError(ctypes.get_errno(), "a copy of the memory could not be mapped")
            offset += pages.size
    finally:
        os.close(file)  # what is mapped stays


def _throw_away(pages: Iterable[int]) -> None:
    for some in joined(Range(page, PAGE) for page in sorted(pages)):
        _advise(some, _MADV_DONTNEED)


def _advise(where: Range, advice: int) -> None:
    if _libc().madvise(where.start, where.size, advice):
        raise OSError(ctypes.get_errno(), "the kernel takes no advice on this memory")


def _memory_file() -> int:
    return os.memfd_create("evalcell", os.MFD_CLOEXEC)


def _view(where: Range) -> memoryview:
    return memoryview((ctypes.c_char * where.size).from_address(where.start)).cast("B")


def _pages(ranges: Iterable[Range]) -> Iterator[int]:
    for some in ranges:
        yield from range(some.start, some.end, PAGE)


def _all_of(copied: int, size: int) -> None:
    if copied != size:
        raise OSError(f"only {copied} of {size} bytes were copied")


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (ctypes.c_void_p, size, number, number, number, ctypes.c_long)
    libc.mmap.restype = ctypes.c_void_p
    libc.madvise.argtypes = (ctypes.c_void_p, size, number)
    return libc


@cache
def works_here() -> bool:
    """Whether this machine has all that this relies on: tried out on a few pages of our own."""
    if sys.platform != "linux":
        return False
    with suppress(OSError, AttributeError):
        return _works()
    return False


def _works() -> bool:
    pages = mmap.mmap(-1, 3 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages[PAGE] = 1
    snapshot = Snapshot(Range(ctypes.addressof(ctypes.c_char.from_buffer(pages)), 3 * PAGE))
    works = True
    for row in range(_ROWS_TO_BE_HOT + 1):
        before = faults()
        pages[PAGE] = pages[2 * PAGE] = 2
        is_hot = row == _ROWS_TO_BE_HOT
        works = works and (faults() > before or is_hot)
        snapshot.put_back(faulted=not is_hot)
        works = works and (pages[PAGE], pages[2 * PAGE]) == (1, 0)
    snapshot.close()
    return works
