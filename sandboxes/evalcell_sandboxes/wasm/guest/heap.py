"""Keeps what a row writes close together: the fewer pages it writes to, the faster its memory is put back."""

import gc

_LARGEST = 64 * 1024
_STEP = 16
_kept = []


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
