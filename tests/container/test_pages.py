"""What rows are forked from lies in large pages, as far as it is in use."""

import pytest
from boxed import ask, boxed, value

_MIB = 1024**2

MODULE = """
import mmap

def written(mib, step):
    room = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, len(room), step):
        room[at] = 1
    return room

def kernel_can():
    try:
        written(4, 4096).madvise(25)
    except OSError:
        return False
    return True

CAN = kernel_can()
STATE = []
def build():
    STATE.extend([written(41, 4096), written(201, 1 << 20)])

def evaluate(output):
    with open("/proc/self/smaps_rollup") as lines:
        sizes = {key: int(size) << 10 for key, size, *_ in map(str.split, list(lines)[1:])}
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as setting:
        by_itself = "[always]" in setting.read()
    return [CAN, by_itself, sizes["AnonHugePages:"], sizes["Rss:"]]
"""
HOOKS = {
    "load": "\nbuild()",
    "fit": "\ndef fit(rows):\n    build()",
}


@pytest.mark.parametrize("hook", HOOKS)
def test_what_is_in_use_is_joined_and_what_is_only_reserved_is_not_filled(container_wall, hook):
    with boxed(container_wall, MODULE + HOOKS[hook]) as session:
        if hook == "fit":
            session.fit([b"{}"])
        kernel_can, by_itself, joined, resident = value(*ask(session, "x"))
    if by_itself:
        pytest.skip("the engine's kernel makes large pages of everything by itself")
    assert resident < 150 * _MIB, "of the 201 MiB one page in 256 is in use"
    if not kernel_can:
        pytest.skip("the engine's kernel joins no pages when asked: MADV_COLLAPSE came with Linux 6.1")
    assert joined >= 20 * _MIB, "of 41 MiB, as far as the machine has large pages to give"


WITH_A_CHILD = """
import os, time
build()
if not os.fork():
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("source", "isolation"),
    [
        pytest.param(HOOKS["load"], "evaluator", id="rows-share-a-process"),
        pytest.param(WITH_A_CHILD, "row", id="a-child-would-keep-its-copy"),
    ],
)
def test_nothing_is_joined_where_that_would_not_pay(container_wall, source, isolation):
    with boxed(container_wall, MODULE + source, isolation=isolation) as session:
        _, by_itself, joined, _ = value(*ask(session, "x"))
    if by_itself:
        pytest.skip("the engine's kernel makes large pages of everything by itself")
    assert joined == 0
