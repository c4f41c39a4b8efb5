"""Instances of the guest: made, called under a deadline, thrown away."""

import math
import threading
import time

from wasmtime import Engine, Store, WasmtimeError
from wasmtime.component import Component, Instance, Linker

from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.outcome import Crashed, Exceeded, Usage
from evalcell_sandboxes.program import Limits
from evalcell_sandboxes.wasm.calls import Export
from evalcell_sandboxes.wasm.engine import TICK_SECONDS
from evalcell_sandboxes.wasm.failure import outcome_of_trap
from evalcell_sandboxes.wasm.host import World, link
from evalcell_sandboxes.wasm.memory import LinearMemory

_EXPORTS: "dict[str, tuple[type[bytes | int], ...]]" = {
    "describe": (bytes,),
    "load": (bytes, bytes),
    "run": (bytes, int),
    "hook": (bytes, bytes),
}
"""What the guest exports, each with the arguments it takes."""


class Guest:
    """Makes instances of the guest, one alive at a time, and calls into them under a deadline."""

    def __init__(self, engine: Engine, component: Component, clock_start_ns: int, limits: Limits) -> None:
        self._thread = threading.get_ident()
        self._engine = engine
        self._component = component
        self._limits = limits
        self._world = World(clock_start_ns, output_bytes=limits.stdout_bytes)
        self._linker: Linker = link(engine, component, self._world)
        self._indexes = {name: component.get_export_index(name) for name in _EXPORTS}
        self._memory = LinearMemory()
        self._store: Store | None = None
        self._instance: Instance | None = None
        self._exports: dict[str, Export] = {}
        self._budgets = {
            name: _budget(getattr(limits, name)) for name in limits.__struct_fields__ if name.endswith("_seconds")
        }
        self.usage = Usage()

    @property
    def alive(self) -> bool:
        return self._store is not None

    def close(self) -> None:
        """Throws the instance away, and with it everything that code inside has ever done."""
        if self._store is not None:
            self._exports.clear()
            self._instance = None
            self._store.close()
            self._store = None

    def renew(self) -> None:
        """Replaces the instance by a new one, in the state that the image was built in."""
        self.close()
        # How much stack a guest may use was reckoned for the thread that opened it; another may have less.
        if threading.get_ident() != self._thread:
            raise SandboxFault("A session belongs to the thread that opened it.")
        store = Store(self._engine)
        store.set_limits(memory_size=self._limits.memory_bytes)
        store.set_epoch_deadline(self._budgets["load_seconds"][1])
        self._world.reset()
        self._memory.forget()
        try:
            self._instance = self._linker.instantiate(store, self._component)
        except WasmtimeError as error:
            store.close()
            raise SandboxFault(f"wasmtime could not make an instance of the guest: {error}") from error
        self._store = store

    def call(self, name: str, *arguments: bytes | int, seed: int, limit: str) -> bytes | Exceeded | Crashed:
        """Calls an export. The instance is thrown away when the call does not come back."""
        assert self._store is not None, "call before renew"
        seconds, ticks, nanoseconds = self._budgets[limit]
        self._world.begin(seed, nanoseconds)
        self._store.set_epoch_deadline(ticks)
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            answer = (self._exports.get(name) or self._export(name))(*arguments)
        except WasmtimeError as error:
            usage = self._usage(wall, cpu)
            self.close()
            return outcome_of_trap(error, self._world.denial, limit, seconds, usage)
        self.usage = self._usage(wall, cpu)
        return answer

    def take_output(self) -> tuple[bytes, bytes] | None:
        """What went to the raw descriptors, past `sys.stdout`; None for most calls."""
        return self._world.take_output() if self._world.wrote else None

    def _export(self, name: str) -> Export:
        index, store, instance = self._indexes[name], self._store, self._instance
        if index is None or store is None or instance is None:
            raise SandboxFault(f"The guest image has no export {name!r}.")
        self._exports[name] = Export(store, instance, index, _EXPORTS[name])
        return self._exports[name]

    def _usage(self, wall: float, cpu: float) -> Usage:
        return Usage(
            wall_seconds=time.perf_counter() - wall + self._world.slept_ns / 1e9,
            cpu_seconds=time.thread_time() - cpu,
            memory_bytes=self._memory.bytes(),
        )


def _budget(seconds: float) -> tuple[float, int, int]:
    """A time limit in seconds, in ticks of the engine's epoch, and in nanoseconds of virtual sleep."""
    return seconds, math.ceil(seconds / TICK_SECONDS) + 1, int(seconds * 1e9)
