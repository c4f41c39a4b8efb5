"""Instances of the guest: made, called under a deadline, thrown away."""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from wasmtime import Engine, Store, WasmtimeError
from wasmtime.component import Component, Instance, Linker

from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.outcome import Crashed, Exceeded, Usage
from evalcell_sandboxes.program import Limits
from evalcell_sandboxes.wasm.calls import Ear, Export
from evalcell_sandboxes.wasm.engine import TICK_SECONDS
from evalcell_sandboxes.wasm.failure import outcome_of_trap
from evalcell_sandboxes.wasm.host import World, link
from evalcell_sandboxes.wasm.memory import LinearMemory

_EXPORTS = {"describe": 1, "load": 2, "run": 1, "hook": 2}
"""What the guest exports, each with how many strings it takes."""
_HOST = "evalcell:guest/host"
# What a report may weigh beyond the result and the prints: compiled code up to a size, a message and a traceback.
_CODE_BYTES = 1024**2
_MESSAGE_BYTES = 256 * 1024
_CALL_SECONDS = 0.1
"""How long a call goes on to further rows."""


class Report(NamedTuple):
    """What the guest said of a call or a row, what that used, and what went to the raw descriptors 1 and 2."""

    text: bytes
    usage: Usage
    output: tuple[bytes, bytes] | None


class Guest:
    """Makes instances of the guest, one alive at a time, and calls into them under a deadline."""

    def __init__(self, engine: Engine, component: Component, clock_start_ns: int, limits: Limits) -> None:
        self._thread = threading.get_ident()
        self._engine = engine
        self._component = component
        self._limits = limits
        self._world = World(clock_start_ns, limits.stdout_bytes, limits.stderr_bytes, self._may_sleep)
        self._ear = Ear(self._row_done)
        self._linker: Linker = link(engine, component, self._world, {_HOST: {"row-done": self._ear}})
        self._indexes = {name: component.get_export_index(name) for name in _EXPORTS}
        self._memory = LinearMemory()
        self._store: Store | None = None
        self._instance: Instance | None = None
        self._exports: dict[str, Export] = {}
        self._seeds: Iterator[int] = iter(())
        self._reports: list[Report] = []
        self._limit = "load_seconds"
        self._most_reports = 0
        self._call_ends = 0.0
        self.told_to_stop = False
        self._started = (0.0, 0.0)
        # Escaping makes a byte of output six bytes of JSON at worst.
        printed = 6 * (limits.stdout_bytes + limits.stderr_bytes)
        self.most_report_bytes = printed + max(limits.result_bytes, _CODE_BYTES) + _MESSAGE_BYTES
        self._budgets = {
            name: (getattr(limits, name), _ticks(getattr(limits, name)))
            for name in limits.__struct_fields__
            if name.endswith("_seconds")
        }

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

    def call(self, name: str, *arguments: bytes, limit: str, seed: int = 0) -> Report | Exceeded | Crashed:
        """Calls an export. The instance is thrown away when the call does not come back."""
        self._most_reports = 0
        self._begin(seed, limit)
        try:
            answer = self._export(name)(*arguments)
        except WasmtimeError as error:
            return self._ended(error, limit)
        return self._report(answer)

    def run(self, rows: Sequence[tuple[int, bytes]]) -> tuple[list[Report], Exceeded | Crashed | None]:
        """Runs rows, each a seed and its arguments, in one call; every row has a deadline and a usage of its own.

        Gives the reports, and what ended the call if it did not come back. There are fewer reports than rows when the
        call has lasted long enough. Hostile code can report whatever it likes: there may be more reports than rows by
        one, which stands for any number more.
        """
        self._reports = []
        self._most_reports = len(rows) + 1
        self._seeds = iter([seed for seed, _ in rows])
        self._begin(next(self._seeds), "wall_seconds")
        self._call_ends = self._started[0] + _CALL_SECONDS
        self.told_to_stop = False
        lines = b"\n".join(b"%d %b" % (seed, arguments.replace(b"\n", b" ")) for seed, arguments in rows)
        try:
            self._export("run")(lines)
        except WasmtimeError as error:
            return self._reports, self._ended(error, "wall_seconds")
        return self._reports, None

    def _row_done(self, text: bytes) -> bool:
        """The guest says that a row is done. From here on the time is the next row's, and the last one's is up.

        Gives whether the guest should go on with the next row, or come back and have its rows passed on first.
        """
        if len(self._reports) >= self._most_reports:
            return False
        self._reports.append(self._report(text))
        self.told_to_stop = self.told_to_stop or time.perf_counter() > self._call_ends
        seed = None if self.told_to_stop else next(self._seeds, None)
        if seed is not None:
            self._begin(seed, "wall_seconds")
        return seed is not None

    def _report(self, text: bytes) -> Report:
        output = self._world.take_output() if self._world.wrote else None
        return Report(text[: self.most_report_bytes + 1], self.usage(), output)

    def _begin(self, seed: int, limit: str) -> None:
        assert self._store is not None, "call before renew"
        self._world.begin(seed)
        self._limit = limit
        self._store.set_epoch_deadline(self._budgets[limit][1])
        self._started = (time.perf_counter(), time.thread_time())

    def _may_sleep(self, slept_ns: int) -> bool:
        """Whether a call that has slept so much in all is still within its limit; what is left shrinks by as much."""
        assert self._store is not None
        left = self._budgets[self._limit][0] - slept_ns / 1e9 - (time.perf_counter() - self._started[0])
        self._store.set_epoch_deadline(_ticks(max(left, 0.0)))
        return bool(left >= 0)

    def _ended(self, error: WasmtimeError, limit: str) -> Exceeded | Crashed:
        usage = self.usage()
        self.close()
        return outcome_of_trap(error, self._world.denial, limit, self._budgets[limit][0], usage)

    def _export(self, name: str) -> Export:
        if (known := self._exports.get(name)) is not None:
            return known
        index, store, instance = self._indexes[name], self._store, self._instance
        if index is None or store is None or instance is None:
            raise SandboxFault(f"The guest image has no export {name!r}.")
        self._exports[name] = Export(store, instance, index, _EXPORTS[name], answers=name != "run")
        return self._exports[name]

    def usage(self) -> Usage:
        """What the call or the row that began last has used so far."""
        wall, cpu = self._started
        return Usage(
            wall_seconds=time.perf_counter() - wall + self._world.slept_ns / 1e9,
            cpu_seconds=time.thread_time() - cpu,
            memory_bytes=self._memory.bytes(),
        )


def _ticks(seconds: float) -> int:
    return math.ceil(seconds / TICK_SECONDS) + 1
