"""Keeps what a row writes close together: the fewer pages it writes to, the faster its memory is put back."""

import gc
import zlib

_LARGEST = 64 * 1024
_STEP = 16
_kept = []
_NOTHING = zlib.compress(b"")
_collect, _freeze, _decompress = gc.collect, gc.freeze, zlib.decompress


def fill_holes() -> None:
    """Takes up every gap that freed objects have left, so that whatever is made from here on lies side by side."""
    gc.collect()
    top = id(bytes(16 * _LARGEST))
    sizes = [_LARGEST >> shift for shift in range(7)]
    for size in (*sizes, *range(sizes[-1], 0, -_STEP)):
        while id(block := bytes(size)) < top:
            _kept.append(block)
    while id(block := object()) < top:
        _kept.append(block)


def settle(reserve_bytes: int) -> None:
    """Makes this the state that rows start from.

    What there is now the collector need never look at again, and memory is asked for that few rows use up: one that
    makes the memory grow cannot be undone. A buffer for decompressing is the one that is allocated without being
    written to.
    """
    _collect()
    _freeze()
    if not reserve_bytes:
        return
    try:
        _decompress(_NOTHING, bufsize=reserve_bytes)
    except MemoryError:
        pass
