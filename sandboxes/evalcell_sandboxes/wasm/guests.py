"""Instances of the guest: made, called under a deadline, put back to where they were, thrown away.

Deadlines: one thread of the engine moves its epoch every few milliseconds. At each step, guest code on whatever thread
calls `_tick` from within, whatever it is doing and whatever it would catch, and there the time is looked at. No row has
a thread or a timer of its own, and many rows can run in one call: a word in the guest's memory says which one it is at.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from wasmtime import Engine, Store, WasmtimeError, _ffi
from wasmtime.component import Component, Instance, Linker

from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.outcome import Crashed, Exceeded, Usage
from evalcell_sandboxes.program import Limits
from evalcell_sandboxes.reports import most_report_bytes
from evalcell_sandboxes.wasm import answers, snapshot
from evalcell_sandboxes.wasm.answers import Answers
from evalcell_sandboxes.wasm.calls import Export
from evalcell_sandboxes.wasm.failure import outcome_of_trap
from evalcell_sandboxes.wasm.host import TIME, World, link
from evalcell_sandboxes.wasm.memory import LinearMemory
from evalcell_sandboxes.wasm.snapshot import Snapshot

_EXPORTS = {"describe": 1, "answers-at": 1, "ship": 3, "load": 2, "settle": 1, "run": 1, "hook": 2}
"""What the guest exports, each with how many strings it takes."""
_CALL_SECONDS = 0.1
"""How long a call goes on to further rows."""
_MUCH_OUTPUT_BYTES = 1024**2
"""How much rows may write to the raw descriptors before a call does not go on to further ones."""
_START_SECONDS = 60.0
"""How long a new instance may take before it has run anything of the program's: that is the machinery's time."""
_CONTINUE = 0

Output = tuple[bytes, bytes]
"""What went to the raw descriptors 1 and 2."""


class Report(NamedTuple):
    """What the guest said of a call, what that used, and what went to the raw descriptors."""

    text: bytes
    usage: Usage
    output: Output | None = None


class Answered(NamedTuple):
    """What came of a call with many rows: the guest's reports, each on a line, with what those rows used and wrote.

    `ended` says what ended the call if it did not come back. That is the fate of the row after those reported on, or
    of the last one of them if the call was not to go on after it: its report does not excuse what came then.
    """

    text: bytes
    usages: list[Usage]
    outputs: dict[int, Output]
    ended: Exceeded | Crashed | None = None
    ended_after_the_last: bool = False


class _Call:
    """A call under way: the limit it is under, the rows it is given, and what each of those has used."""

    __slots__ = (
        "began",
        "began_cpu",
        "limit",
        "looked",
        "looked_cpu",
        "output_bytes",
        "outputs",
        "row",
        "rows",
        "started",
        "stopped_at",
        "usages",
    )

    def __init__(self, limit: str, rows: Sequence[bytes] = ()) -> None:
        self.limit = limit
        self.rows = rows
        self.row = 0
        self.stopped_at: int | None = None
        self.usages: list[Usage] = []
        self.outputs: dict[int, Output] = {}
        self.output_bytes = 0
        self.started = self.began = self.looked = time.perf_counter()
        self.began_cpu = self.looked_cpu = time.thread_time()


class Guest:
    """Makes instances of the guest, one alive at a time, and calls into them under a deadline."""

    def __init__(self, engine: Engine, component: Component, clock_start_ns: int, limits: Limits) -> None:
        self._thread = threading.get_ident()
        self._engine = engine
        self._component = component
        self._limits = limits
        self._seconds = {name: getattr(limits, name) for name in limits.__struct_fields__ if name.endswith("_seconds")}
        self._seconds["start_seconds"] = _START_SECONDS
        self._world = World(clock_start_ns, limits.stdout_bytes, limits.stderr_bytes, self._may_sleep, self._look)
        self._linker: Linker = link(engine, component, self._world)
        self._indexes = {name: component.get_export_index(name) for name in _EXPORTS}
        self._on_tick = _tick_callback(self._tick)
        self._memory = LinearMemory()
        self._answers: Answers | None = None
        self._snapshot: Snapshot | None = None
        self._faulted = False
        self._store: Store | None = None
        self._instance: Instance | None = None
        self._exports: dict[str, Export] = {}
        self._call = _Call("load_seconds")
        self._fault: BaseException | None = None
        self._seed_of: Callable[[bytes], int] = len
        self._most_report_bytes = most_report_bytes(limits)

    @property
    def alive(self) -> bool:
        return self._store is not None

    @property
    def answer_bytes(self) -> int:
        """How much room the guest has for answers. Without any it comes back after every row, with the answer."""
        return answers.SIZE if self._answers is not None else 0

    def close(self) -> None:
        """Throws the instance away, and with it everything that code inside has ever done."""
        self._forget()
        if self._store is not None:
            self._exports.clear()
            self._instance = None
            self._answers = None
            self._store.close()
            self._store = None

    def renew(self) -> None:
        """Replaces the instance by a new one, in the state that the image was built in."""
        self.close()
        store = Store(self._engine)
        store.set_limits(memory_size=self._limits.memory_bytes)
        store.set_epoch_deadline(1)
        _ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), self._on_tick, None, _NO_FINALIZER)
        self._begin(_Call("start_seconds"), int)
        self._world.reset()
        try:
            self._instance = self._linker.instantiate(store, self._component)
            self._store = store
            self._answers = Answers.find(self._export("answers-at"), self._memory)
        except WasmtimeError as error:
            self._store = None
            store.close()
            self._raise_fault()
            raise SandboxFault(f"wasmtime could not make an instance of the guest: {error}") from error

    def remember(self) -> None:
        """Makes what the instance is now the state that `restore` goes back to, where that can be done."""
        self._memory.look()
        if not self.alive or self._memory.where is None or not snapshot.works_here():
            return  # what lies where a dead instance lay is somebody else's
        self._forget()
        self._world.settle()
        try:
            self._snapshot = Snapshot(self._memory.where)
        except OSError:  # out of descriptors or mappings: every row gets an instance of its own
            self._snapshot = None

    def _forget(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def restore(self) -> None:
        """Puts the instance back to the state that was remembered, or else throws it away."""
        if not self._put_back():
            self.close()

    def _put_back(self) -> bool:
        if self._snapshot is None or self._memory.where != self._snapshot.where or not self._world.rewind():
            return False
        try:
            self._snapshot.put_back(faulted=self._faulted)
        except OSError:
            return False
        self._faulted = False
        return True

    def call(self, name: str, *arguments: bytes, limit: str, seed: int = 0) -> Report | Exceeded | Crashed:
        """Calls an export. The instance is thrown away when the call does not come back."""
        self._begin(_Call(limit), lambda: seed)
        try:
            answer = self._export(name)(*arguments)
        except WasmtimeError as error:
            return self._ended(error)
        self._memory.look()
        self._pass_to(1)
        return Report(answer[: self._most_report_bytes + 1], self._call.usages[0], self._call.outputs.get(0))

    def run(self, rows: Sequence[bytes], seed_of: Callable[[bytes], int]) -> Answered:
        """Runs rows, the arguments of each, in one call; every row has a deadline and a usage of its own.

        Rows that are done within one tick share what they used in it. There are fewer reports than rows when the call
        came back early: it was told to, or an answer was large. Hostile code can report whatever it likes, and as much.
        """
        call = _Call("wall_seconds", rows)
        self._seed_of = seed_of
        self._begin(call, lambda: seed_of(rows[0]))
        faults = snapshot.faults() if self._snapshot is not None else 0
        if self._answers is not None:
            self._answers.reset()
        try:
            rest = self._export("run")(b"\n".join(rows))
        except WasmtimeError as error:
            self._look()
            text = self._answered()
            last = len(rows) if call.stopped_at is None else call.stopped_at + 1
            return Answered(text, call.usages, call.outputs, self._ended(error), text.count(b"\n") >= last)
        if self._snapshot is not None:
            self._faulted = self._faulted or snapshot.faults() != faults
        self._memory.look()
        text = self._answered() + (rest[: self._most_report_bytes + 1] + b"\n" if rest else b"")
        if (count := text.count(b"\n")) <= len(rows):  # else they are made up, by the one whose time it still is
            self._pass_to(count)
        return Answered(text, call.usages, call.outputs)

    def usage(self) -> Usage:
        """What the call or the row that began last has used so far."""
        self._memory.look()
        call = self._call
        return Usage(
            wall_seconds=time.perf_counter() - call.began + self._world.slept_ns / 1e9,
            cpu_seconds=time.thread_time() - call.began_cpu,
            memory_bytes=self._memory.bytes,
        )

    def _begin(self, call: _Call, seed: Callable[[], int]) -> None:
        # How much stack a guest may use was reckoned for the thread that opened it, and its page faults are counted.
        if threading.get_ident() != self._thread:
            raise SandboxFault("A session belongs to the thread that opened it.")
        self._call = call
        self._world.denial = None
        self._world.begin(seed)

    def _answered(self) -> bytes:
        return self._answers.text() if self._answers is not None else b""

    # -- while guest code runs ------------------------------------------------------------------------------------
    def _look(self) -> None:
        """Finds out which row is running, and closes the books of those that are done.

        The last row is at it until the call is over: there is none after it that the time could be.
        """
        call, done = self._call, self._answers.done() if self._answers is not None else 0
        if call.row < done <= len(call.rows):
            self._memory.look()
            self._pass_to(min(done, len(call.rows) - 1))
        call.looked, call.looked_cpu = time.perf_counter(), time.thread_time()

    def _pass_to(self, row: int) -> None:
        """From here on the time is that row's.

        Until the last look it was the one's that was running then; what was used since, those before this one share.
        """
        call, world, now, now_cpu = self._call, self._world, time.perf_counter(), time.thread_time()
        count = row - call.row
        if count <= 0:
            return
        wall, cpu, memory = (now - call.looked) / count, (now_cpu - call.looked_cpu) / count, self._memory.bytes
        own, own_cpu = call.looked - call.began + world.slept_ns / 1e9, call.looked_cpu - call.began_cpu
        call.usages.append(Usage(own + wall, own_cpu + cpu, memory))
        call.usages += [Usage(wall, cpu, memory)] * (count - 1)
        if world.wrote:
            self._keep(world.take_output())
        call.row, call.began, call.began_cpu = row, now, now_cpu
        call.looked, call.looked_cpu = now, now_cpu
        world.begin(lambda: self._seed_of(call.rows[row]) if row < len(call.rows) else 0)
        if call.output_bytes >= _MUCH_OUTPUT_BYTES:
            self._ask_back()

    def _keep(self, output: Output) -> None:
        """Keeps what a row wrote, unless the guest was to come back before it and did not."""
        call = self._call
        if call.stopped_at is None or call.row <= call.stopped_at:
            call.outputs[call.row] = output
        call.output_bytes += sum(map(len, output))

    def _ask_back(self) -> None:
        """Has the guest come back after the row that it is at, which is the last of the call then.

        Where it is the last anyway, nothing is asked: a row could see it, and know how much real time has passed.
        """
        call = self._call
        if call.stopped_at is None and call.row + 1 < len(call.rows) and self._answers is not None:
            call.stopped_at = call.row
            self._answers.stop()

    def _tick(self) -> bool:
        """Whether guest code may go on. Called from within it, every few milliseconds."""
        try:
            return self._in_time()
        except BaseException as error:  # noqa: BLE001 - nothing may cross wasmtime's frames; `_ended` raises it
            self._fault = error
            return False

    def _in_time(self) -> bool:
        self._look()
        call, now = self._call, time.perf_counter()
        if now - call.began + self._world.slept_ns / 1e9 > self._seconds[call.limit]:
            self._world.denial = TIME
            return False
        if now - call.started > _CALL_SECONDS:
            self._ask_back()
        return True

    def _may_sleep(self, slept_ns: int) -> bool:
        """Whether a row that has slept so much in all is still within its limit."""
        call = self._call
        return bool(time.perf_counter() - call.began + slept_ns / 1e9 <= self._seconds[call.limit])

    def _ended(self, error: WasmtimeError) -> Exceeded | Crashed:
        usage, limit = self.usage(), self._call.limit
        self.close()
        self._raise_fault()
        return outcome_of_trap(error, self._world.denial, limit, self._seconds[limit], usage)

    def _raise_fault(self) -> None:
        """Raises what went wrong in a tick, if that is what ended the call."""
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def _export(self, name: str) -> Export:
        if (known := self._exports.get(name)) is not None:
            return known
        index, store, instance = self._indexes[name], self._store, self._instance
        if index is None or store is None or instance is None:
            raise SandboxFault(f"The guest image has no export {name!r}.")
        self._exports[name] = Export(store, instance, index, _EXPORTS[name])
        return self._exports[name]


_NO_FINALIZER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)()
_TICK = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(_ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(_ffi.wasmtime_update_deadline_kind_t),
)


def _tick_callback(may_go_on: Callable[[], bool]) -> Any:
    """What wasmtime calls when the epoch has moved. Guest code goes on until the next time, or traps."""

    def ticked(_context: object, _data: object, ticks: Any, kind: Any) -> int:
        ticks[0], kind[0] = 1, _CONTINUE
        if may_go_on():
            return 0
        return ctypes.cast(_ffi.wasmtime_error_new(TIME.encode()), ctypes.c_void_p).value or 0

    return _TICK(ticked)
