"""The wasmtime engine: how guest code is compiled, interrupted and kept from overflowing its stack."""

import platform
import threading
import time
from functools import cache

from wasmtime import Config, Engine, _ffi

from evalcell_sandboxes.stacks import PLENTY_BYTES, this_thread_bytes

TICK_SECONDS = 0.005
"""How often deadlines are looked at, and so how late a runaway call is stopped at most."""

# What the host's own frames need beside the guest's: Python, ctypes and wasmtime, and the host functions it calls.
_HOST_STACK_BYTES = 1024**2
_MOST_WASM_STACK_BYTES = PLENTY_BYTES - 32 * 1024**2


def make_engine(wasm_stack_bytes: int = _HOST_STACK_BYTES, *, any_processor: bool = False) -> Engine:
    """An engine with the settings that compiled modules in the cache were made with.

    What it compiles for `any_processor` uses nothing that only some processors of this architecture have. wasmtime
    writes into a module what it uses, and refuses to load one that would use what is not there.
    """
    config = Config()
    if any_processor:
        config.target = f"{platform.machine()}-unknown-linux-gnu"  # naming one keeps wasmtime from asking this one
    config.epoch_interruption = True
    # wasmtime aborts the whole process when the wasm stack is larger than the async one, which only the C API sets.
    _ffi.wasmtime_config_async_stack_size_set(config.ptr(), wasm_stack_bytes + _HOST_STACK_BYTES)
    config.max_wasm_stack = wasm_stack_bytes
    return Engine(config)


def wasm_stack_bytes() -> int:
    """How much stack a guest may use on the calling thread. Past it wasmtime traps; past the thread's end, all dies."""
    return min(_MOST_WASM_STACK_BYTES, max(this_thread_bytes() * 3 // 4, this_thread_bytes() - 2 * _HOST_STACK_BYTES))


@cache
def running_engine(wasm_stack_bytes: int) -> Engine:
    """An engine for guests with that much stack, its epoch moving: with every tick, guests are asked for the time."""
    engine = make_engine(wasm_stack_bytes)

    def tick() -> None:
        while True:
            time.sleep(TICK_SECONDS)
            engine.increment_epoch()

    threading.Thread(target=tick, name="evalcell-deadlines", daemon=True).start()
    return engine
