"""Pages are found and put back, whatever was written to them: here on memory of our own, pattern by pattern."""

import contextlib
import ctypes
import itertools
import mmap
import os
import random
from array import array
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcell_sandboxes import SandboxFault
from evalcell_sandboxes.wasm import pagemap, snapshot
from evalcell_sandboxes.wasm.pagemap import PAGE, Pagemap, Range, joined
from evalcell_sandboxes.wasm.snapshot import Snapshot, faults

pytestmark = pytest.mark.usefixtures("restoring")

PAGES = 96


class Memory:
    """Pages of our own, with what they hold kept beside them."""

    def __init__(self, pages: int, descriptor: int = -1) -> None:
        flags = mmap.MAP_PRIVATE | (mmap.MAP_ANONYMOUS if descriptor < 0 else 0)
        self.pages = mmap.mmap(descriptor, pages * PAGE, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self.where = Range(ctypes.addressof(ctypes.c_char.from_buffer(self.pages)), pages * PAGE)
        ctypes.CDLL(None).madvise(ctypes.c_void_p(self.where.start), ctypes.c_size_t(self.where.size), 15)

    def write(self, *numbers: int, what: int = 7) -> None:
        for number in numbers:
            self.pages[number * PAGE + number % PAGE] = what

    def read(self, *numbers: int) -> None:
        for number in numbers:
            _ = self.pages[number * PAGE]

    def contents(self) -> bytes:
        """All that it holds, read without a trace: a page of zeros that is read counts as a copy from then on."""
        with pagemap_here() as found:
            before = set(snapshot._pages(found.written(self.where)))
            contents = self.pages[:]
            snapshot._throw_away(set(snapshot._pages(found.written(self.where))) - before)
        return contents

    def range(self, *numbers: int) -> list[Range]:
        return joined(Range(self.where.start + number * PAGE, PAGE) for number in sorted(numbers))


@contextlib.contextmanager
def pagemap_here() -> Iterator[Pagemap]:
    found = Pagemap()
    try:
        yield found
    finally:
        found.close()


@contextlib.contextmanager
def snapshot_of(memory: Memory) -> Iterator[Snapshot]:
    taken = Snapshot(memory.where)
    try:
        yield taken
    finally:
        taken.close()


def both_ways(found: Pagemap, where: Range) -> list[Range]:
    """The written pages, as both ways to ask for them say."""
    read = found._read(where)
    if found.written == found._scan:
        assert found._scan(where) == read
    return read


NUMBERS = st.frozensets(st.integers(0, PAGES - 1))


@settings(max_examples=150, deadline=None)
@given(written=NUMBERS, read=NUMBERS)
def test_the_pages_that_were_written_are_found_whatever_was_read(written, read):
    memory = Memory(PAGES)
    with pagemap_here() as found:
        assert both_ways(found, memory.where) == []
        memory.read(*read - written)
        memory.write(*written)
        # A page of zeros that was only read is the kernel's own, and may count as present: it is never missed.
        seen = set(snapshot._pages(both_ways(found, memory.where)))
        assert set(snapshot._pages(memory.range(*written))) <= seen
        assert seen <= set(snapshot._pages(memory.range(*written, *read)))


@settings(max_examples=100, deadline=None)
@given(written=NUMBERS, read=NUMBERS)
def test_pages_of_a_file_are_found_once_they_are_written(tmp_path_factory, written, read):
    path = tmp_path_factory.mktemp("pages") / "file"
    path.write_bytes(random.Random(1).randbytes(PAGES * PAGE))
    with path.open("rb") as file, pagemap_here() as found:
        memory = Memory(PAGES, file.fileno())
        memory.read(*read)
        assert both_ways(found, memory.where) == []
        memory.write(*written)
        assert both_ways(found, memory.where) == memory.range(*written)


@pytest.mark.parametrize("ranges", [1_023, 1_024, 1_025, 1_500, 1_536, 2_048, 3_000, 4_096])
def test_more_ranges_are_found_than_the_kernel_gives_at_a_time(ranges):
    """Where the last of them just fit, the kernel says that it stopped before them, and would give them again."""
    memory = Memory(2 * ranges)
    every_other = range(0, 2 * ranges, 2)
    memory.write(*every_other)
    with pagemap_here() as found:
        assert both_ways(found, memory.where) == memory.range(*every_other)


@pytest.mark.parametrize(
    ("entry", "is_written"),
    [
        (0, False),
        (pagemap._PRESENT, True),
        (pagemap._PRESENT | pagemap._OF_FILE, False),
        (pagemap._SWAPPED, True),
        (pagemap._SWAPPED | pagemap._OF_FILE, True),
        (pagemap._PRESENT | 1 << 55 | 12345, True),
        (pagemap._OF_FILE, False),
    ],
)
def test_an_entry_of_the_pagemap_says_whether_its_page_is_a_copy(tmp_path, entry, is_written):
    """Swapped pages are given as they would be: there may be no swap here."""
    (tmp_path / "pagemap").write_bytes(array("Q", [0, entry, 0]).tobytes())
    with pagemap_here() as found:
        os.dup2(os.open(tmp_path / "pagemap", os.O_RDONLY), found._file)
        assert found._read(Range(0, 3 * PAGE)) == ([Range(PAGE, PAGE)] if is_written else [])


def test_without_the_scan_of_newer_kernels_the_pagemap_is_read(monkeypatch):
    monkeypatch.setattr(pagemap, "_PAGEMAP_SCAN", 0)
    memory = Memory(4)
    memory.write(1, 3)
    with pagemap_here() as found:
        assert found.written == found._read
        assert found.written(memory.where) == memory.range(1, 3)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=20), st.integers(0, 4))
def test_joined_ranges_hold_what_their_parts_held_and_gaps_no_wider_than_allowed(parts, gap):
    at, ranges = 0, []
    for skip, size in parts:
        ranges.append(Range(at + skip, size))
        at += skip + size
    whole = joined(ranges, gap=gap)
    assert all(any(big.start <= some.start and some.end <= big.end for big in whole) for some in ranges)
    assert all(after.start - before.end > gap for before, after in itertools.pairwise(whole))
    assert sum(big.size for big in whole) <= at


# -- putting back ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def low_thresholds() -> Iterator[None]:
    """So low that a few pages and rows pass every one of them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_ROWS_TO_BE_HOT", 2), ("_MOST_HOT_PAGES", 24), ("_ROWS_A_LOOK", 5), ("_MOST_IOVECS", 3)):
            patch.setattr(snapshot, name, value)
        yield


def put_back_after_writing(taken: Snapshot, memory: Memory, *numbers: int) -> None:
    before = faults()
    memory.write(*numbers)
    taken.put_back(faulted=faults() != before)


def hot(taken: Snapshot, memory: Memory) -> set[int]:
    return {(page - memory.where.start) // PAGE for page in taken._hot.pages}


@settings(max_examples=60, deadline=None)
@given(first=NUMBERS, rows=st.lists(NUMBERS | st.just(frozenset(range(0, PAGES, 2))), min_size=1, max_size=14))
def test_whatever_rows_write_the_memory_is_put_back(first, rows):
    memory = Memory(PAGES)
    memory.write(*first, what=3)
    before = memory.contents()
    with low_thresholds(), snapshot_of(memory) as taken:
        assert memory.contents() == before
        for numbers in rows:
            put_back_after_writing(taken, memory, *numbers)
            assert memory.contents() == before


def test_memory_of_a_file_is_put_back_to_the_file(tmp_path):
    path = tmp_path / "image"
    path.write_bytes(random.Random(2).randbytes(PAGES * PAGE))
    with path.open("rb") as file:
        memory = Memory(PAGES, file.fileno())
        memory.write(3, 4, 40)
        before = memory.contents()
        with snapshot_of(memory) as taken:
            for _ in range(3):
                put_back_after_writing(taken, memory, 3, 5, 41, 95)
                assert memory.contents() == before


def test_pages_that_rows_write_become_hot_and_then_cost_no_fault():
    memory = Memory(PAGES)
    with snapshot_of(memory) as taken:
        for _ in range(3):
            assert hot(taken, memory) == set()
            put_back_after_writing(taken, memory, 1, 2, 9)
        assert hot(taken, memory) == {1, 2, 9}
        put_back_after_writing(taken, memory, 1, 2, 9)
        before = faults()
        memory.write(1, 2, 9)
        assert faults() == before
        taken.put_back(faulted=False)
        assert not any(memory.contents())


def test_pages_that_one_row_or_another_writes_do_not_become_hot():
    """A row that looks something up in a large table writes to pages of it that hardly any other row writes to."""
    memory = Memory(PAGES)
    with snapshot_of(memory) as taken:
        for row in range(30):
            put_back_after_writing(taken, memory, 0, 1 + row % 7, 10 + row)
            assert not any(memory.contents())
        assert hot(taken, memory) == {0}


def test_no_more_pages_become_hot_than_may():
    memory = Memory(PAGES)
    with low_thresholds(), snapshot_of(memory) as taken:
        for _ in range(4):
            put_back_after_writing(taken, memory, *range(40))
            assert len(hot(taken, memory)) <= 24
            assert not any(memory.contents())


def test_once_in_so_many_rows_what_is_hot_is_forgotten():
    memory = Memory(PAGES)
    with low_thresholds(), snapshot_of(memory) as taken:
        for row in range(1, 12):
            put_back_after_writing(taken, memory, 1, 2)
            assert hot(taken, memory) == ({1, 2} if row % 5 >= 2 else set())
            assert not any(memory.contents())


def test_a_write_that_nobody_noticed_is_a_fault_of_the_host():
    memory = Memory(PAGES)
    with low_thresholds(), snapshot_of(memory) as taken:
        for _ in range(4):
            memory.write(50)
            taken.put_back(faulted=False)
        memory.write(50)
        with pytest.raises(SandboxFault, match="without a page fault"):
            taken.put_back(faulted=False)


def test_hot_pages_in_more_pieces_than_one_call_takes_are_put_back():
    memory = Memory(2 * 2048)
    every_other = range(0, 2 * 2048, 2)
    assert len(every_other) > snapshot._MOST_IOVECS
    with snapshot_of(memory) as taken:
        for _ in range(snapshot._ROWS_TO_BE_HOT):
            put_back_after_writing(taken, memory, *every_other)
        assert len(taken._hot.pages) == len(every_other)
        assert len(taken._hot._portions) == 2
        for _ in range(3):
            put_back_after_writing(taken, memory, *every_other, 4001)
            assert not any(memory.contents())


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("failing", ["_map_copy_over", "_advise", "_memory_file"])
def test_a_snapshot_that_cannot_be_taken_leaves_no_descriptors(monkeypatch, failing):
    def fail(*arguments: object) -> None:
        raise OSError("no more of that")

    memory = Memory(4)
    before = open_descriptors()
    monkeypatch.setattr(snapshot, failing, fail)
    for _ in range(3):
        with pytest.raises(OSError, match="no more of that"):
            Snapshot(memory.where)
    assert open_descriptors() == before


@pytest.mark.parametrize("failing", ["_memory_file", "_all_of"])
def test_a_snapshot_that_can_learn_no_more_pages_is_closed_in_order(monkeypatch, failing):
    """It is closed by whoever gets the error, once: a descriptor closed twice may be somebody else's by then."""

    def fail(*arguments: object) -> None:
        raise OSError("no more of that")

    memory = Memory(8)
    before = open_descriptors()
    taken = Snapshot(memory.where)
    for _ in range(snapshot._ROWS_TO_BE_HOT - 1):
        put_back_after_writing(taken, memory, 1, 2)
    memory.write(1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, failing, fail)
        with pytest.raises(OSError, match="no more of that"):
            taken.put_back(faulted=True)
    taken.close()
    assert open_descriptors() == before
