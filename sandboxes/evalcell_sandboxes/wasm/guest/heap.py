"""Keeps what a row writes close together: the fewer pages it writes to, the faster its memory is put back."""

import builtins
import contextlib
import gc
import importlib.util
import marshal
import sys
import zlib

_MIB = 1024**2
_SIZES = (*sorted((base << shift for base in (2, 3) for shift in range(9, 15)), reverse=True), *range(1024, 0, -8))
"""Blocks that fill every gap there may be, from large to small: an allocation goes where it fits best."""
_NOTHING = zlib.compress(b"")
_kept = []
# User code may have patched any of these by the time they are needed.
_bytes, _id, _object = bytes, id, object
collect, _freeze, _decompress = gc.collect, gc.freeze, zlib.decompress


def import_tightly(*names: str) -> None:
    """Imports our own modules, each after those that it imports, so that they lie side by side.

    They are compiled first, because what the compiler throws away would leave gaps between what stays. And they have
    built-ins of their own: user code may patch `len` in `builtins`, and still be reported on.
    """
    specs = [importlib.util.find_spec(name) for name in names]
    codes = [marshal.dumps(spec.loader.get_code(spec.name)) for spec in specs]
    fill_gaps()
    for spec, code in zip(specs, codes, strict=True):
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        module.__dict__["__builtins__"] = dict(vars(builtins))
        exec(marshal.loads(code), module.__dict__)


def fill_gaps() -> None:
    """Takes up every gap that freed objects have left, so that whatever is made from here on lies side by side."""
    collect()  # which also empties CPython's lists of objects to be used again
    top = _id(_bytes(_MIB))
    for size in _SIZES:
        while _id(block := _bytes(size)) < top:
            _kept.append(block)
    while _id(block := _object()) < top:
        _kept.append(block)


def settle(reserve_bytes: int) -> None:
    """Makes this the state that rows start from. In a call of its own: what others leave behind would be gaps again.

    What there is now the collector need never look at again. And memory is asked for that few rows use up, because a
    row that makes the memory grow cannot be undone: a buffer for decompressing is allocated without being written to.
    Where there is no memory for all of this, rows do without.
    """
    with contextlib.suppress(MemoryError):
        fill_gaps()
        _freeze()
        _decompress(_NOTHING, bufsize=reserve_bytes)
