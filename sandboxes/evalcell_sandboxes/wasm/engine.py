"""The wasmtime engine: how guest code is compiled, interrupted and kept from overflowing its stack."""

import threading
import time
from functools import cache

from wasmtime import Config, Engine, _ffi

TICK_SECONDS = 0.005
"""How often deadlines are looked at, and so how late a runaway call is stopped at most."""

# CPython's own recursion limit comes before this in most code, and gives a Python error; past it, a trap.
_WASM_STACK_BYTES = 2 * 1024**2
# wasmtime aborts the whole process when the wasm stack is larger than this one. Only the C API can set it.
_ASYNC_STACK_BYTES = 4 * 1024**2


def make_engine() -> Engine:
    """An engine with the settings that compiled modules in the cache were made with."""
    config = Config()
    config.epoch_interruption = True
    _ffi.wasmtime_config_async_stack_size_set(config.ptr(), _ASYNC_STACK_BYTES)
    config.max_wasm_stack = _WASM_STACK_BYTES
    return Engine(config)


@cache
def running_engine() -> Engine:
    """The engine of this process, with its epoch moving: one thread serves every deadline."""
    engine = make_engine()

    def tick() -> None:
        while True:
            time.sleep(TICK_SECONDS)
            engine.increment_epoch()

    threading.Thread(target=tick, name="evalcell-deadlines", daemon=True).start()
    return engine
