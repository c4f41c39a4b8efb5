"""What rows are forked from lies in large pages, as far as it is in use."""

import mmap

import pytest
from boxed import ask, boxed, value

_MADV_COLLAPSE = 25
_MIB = 1024**2

STATE = """
import mmap
WORDS = [str(number) * 10 for number in range(600_000)]
ROOM = mmap.mmap(-1, 200 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(ROOM), 1 << 20):
    ROOM[at] = 1

def evaluate(output):
    with open("/proc/self/smaps_rollup") as lines:
        sizes = {key: int(size) for key, size, *_ in map(str.split, list(lines)[1:])}
    return [sizes["AnonHugePages:"] << 10, sizes["Rss:"] << 10, len(WORDS)]
"""


def test_what_a_module_has_built_is_joined_and_what_it_has_only_reserved_is_not_filled(container_wall):
    with boxed(container_wall, STATE) as session:
        joined, resident, words = value(*ask(session, "x"))
    assert words == 600_000
    assert resident < 150 * _MIB, "the 200 MiB of which one page in 256 is in use"
    if not _kernel_can():
        pytest.skip("this kernel joins no pages when asked: MADV_COLLAPSE came with Linux 6.1")
    assert joined > 20 * _MIB


def _kernel_can() -> bool:
    with mmap.mmap(-1, 4 * _MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as some:
        some.write(b"x" * len(some))
        try:
            some.madvise(_MADV_COLLAPSE)
        except OSError:
            return False
    return True
