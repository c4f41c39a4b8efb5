"""Leaves room in the allocators, so that rows seldom have to ask the kernel for memory: that shows, and costs a keeper."""

import contextlib
import ctypes
import types

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGE_BYTES = 32 * 1024**2
"""Pieces of memory from this size on have a mapping to themselves; glibc allows no more."""
_FREE_BYTES = 16 * 1024**2
_ARENA_BYTES, _ARENAS, _BLOCK_BYTES = 1024**2, 4, 480
BYTES = _FREE_BYTES + _ARENAS * _ARENA_BYTES
"""How much room there is."""
_FRAMES_BYTES = 264 * 1024
"""A piece is twice as large as the last power of two below what is needed, so nearly half of it is left."""

_libc = ctypes.CDLL(None)
_libc.malloc.restype = ctypes.c_void_p
_libc.free.argtypes = (ctypes.c_void_p,)
_kept = []


def hold_on() -> None:
    """Has C's allocator keep what it has once got from the kernel."""
    with contextlib.suppress(AttributeError):  # not every C library has these
        _libc.mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
        _libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGE_BYTES)


def leave() -> None:
    """Has the allocators of C and of Python get more than they need. Python's gives nothing back that is partly in use."""
    _libc.free(_libc.malloc(ctypes.c_size_t(_FREE_BYTES)))
    _kept[:] = [bytes(_BLOCK_BYTES) for _ in range(_ARENAS * _ARENA_BYTES // _BLOCK_BYTES)][
        :: _ARENA_BYTES // (2 * _BLOCK_BYTES)
    ]


def roomy(function):
    """The function with room for many calls below it.

    Frames lie in pieces of memory that are mapped when calls go deeper, and unmapped when they are done, again and again.
    A function that says it needs a lot gets a large piece, and those that it calls share it.
    """
    code = function.__code__.replace(co_stacksize=_FRAMES_BYTES // 8)
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
