"""The world that the guest sees: deny by default, and the same on every machine.

Every import of the guest is a door. This module decides for each one, in this order:

1. *Served* from here: clocks, sleep, random, an empty environment, the raw standard streams. All of it is made
   up from the row's seed and the run's start time, so a row sees the same world wherever and whenever it runs.
2. *Refused* with the interface's own error code (files, sockets, name look-ups), which the guest's libc turns
   into errno and CPython into `PermissionError`: honest code can catch it, and the instance lives on.
3. *Trapped*: whatever is left, and whatever a later image may import that nobody has thought about here.

No function in this module touches the host's files, network, environment, clock or entropy.
"""

import random
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, cast

from wasmtime import Engine, WasmtimeError
from wasmtime.component import (
    Component,
    ComponentInstanceType,
    EnumType,
    FuncType,
    Linker,
    LinkerInstance,
    Record,
    ResourceAny,
    ResourceHost,
    ResourceType,
    ResultType,
    Variant,
)

# The error codes that mean "you may not", in the words of wasi:filesystem and wasi:sockets.
_REFUSALS = ("not-permitted", "access", "access-denied")
# Each reading of a clock moves it by this much: time never stands still between two readings, as on a real machine.
_TICK_NS = 1_000
_STREAM_CHUNK_BYTES = 4_096
_RANDOM_BYTES = 65_536
_NS = 1_000_000_000

# Why a call was ended from here.
TIME = "out of time"
SLEEP = "sleep beyond the time limit"
EXIT = "exit"

# Host-side numbers of the resource types. The values mean nothing; that they differ does.
_POLLABLE, _ERROR, _INPUT, _OUTPUT, _DESCRIPTOR, _NETWORK = range(1, 7)
_RESOURCES = {
    "pollable": _POLLABLE,
    "error": _ERROR,
    "input-stream": _INPUT,
    "output-stream": _OUTPUT,
    "descriptor": _DESCRIPTOR,
    "network": _NETWORK,
}
_STDIN, _STDOUT, _STDERR, _NOWHERE = range(4)


class Denied(WasmtimeError):
    """Raised in a host function to end the guest's call. Only a `WasmtimeError` may cross wasmtime's frames."""


class World:
    """What one instance can observe: a virtual clock, a seeded source of randomness, raw output kept within bounds.

    `look` is called before anything that belongs to a row, so that it goes to the row that is running now.
    """

    def __init__(
        self,
        start_ns: int,
        stdout_bytes: int,
        stderr_bytes: int,
        may_sleep: Callable[[int], bool],
        look: Callable[[], None],
    ) -> None:
        self._start_ns = start_ns
        self._may_sleep = may_sleep
        self._look = look
        self._most_output = {_STDOUT: stdout_bytes, _STDERR: stderr_bytes}
        self.reset()

    def reset(self) -> None:
        """Back to the first moment, for a new instance."""
        self.denial: str | None = None
        self._random: random.Random | None = None
        self._output = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self.wrote = False
        self._elapsed_ns = 0
        self._handles: dict[int, int] = {}
        self._next_handle = 1
        self._most_handles = 0
        self.begin(int)
        self.settle()

    def begin(self, seed: Callable[[], int]) -> None:
        """Starts a call or a row, with its own randomness: most never draw, and to make a seed takes a while."""
        self._seed, self._random = seed, None
        self.slept_ns = 0

    def settle(self) -> None:
        """From here on, this is the moment that `rewind` goes back to."""
        self._settled = self._elapsed_ns, self._next_handle, dict(self._handles)
        self._most_handles = len(self._handles)

    def rewind(self) -> bool:
        """Goes back to the settled moment, if the instance can: if it holds the handles that it held then.

        Nor may it have held more than one beside them at a time: given back in another order, they would leave the
        list from which wasmtime takes free handles in another order too.
        """
        elapsed_ns, next_handle, handles = self._settled
        if self._handles != handles or self._most_handles > len(handles) + 1:
            return False
        self._elapsed_ns, self._next_handle, self._most_handles = elapsed_ns, next_handle, len(handles)
        if self.wrote:
            self.take_output()
        return True

    def take_output(self) -> tuple[bytes, bytes]:
        """What the guest wrote to the raw descriptors 1 and 2 since the last call."""
        taken = bytes(self._output[_STDOUT]), bytes(self._output[_STDERR])
        self._output = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self.wrote = False
        return taken

    # -- handles: everything that the guest owns has a number here, until it drops it ------------------------------
    def _give(self, store: Any, kind: int, what: int) -> Any:
        number, self._next_handle = self._next_handle, self._next_handle + 1
        self._handles[number] = what
        self._most_handles = max(self._most_handles, len(self._handles))
        return ResourceHost.own(number, kind).to_any(store)

    def drop(self, _store: object, number: int) -> None:
        self._handles.pop(number, None)

    # -- clocks -------------------------------------------------------------------------------------------------
    def monotonic_now(self, _store: object) -> int:
        self._elapsed_ns += _TICK_NS
        return self._elapsed_ns

    def wall_now(self, _store: object) -> Record:
        return _datetime(self._start_ns + self.monotonic_now(_store))

    def resolution(self, _store: object) -> int:
        return _TICK_NS

    def wall_resolution(self, _store: object) -> Record:
        return _datetime(_TICK_NS)

    def subscribe_instant(self, store: Any, when: int) -> Any:
        return self._give(store, _POLLABLE, when)

    def subscribe_duration(self, store: Any, duration: int) -> Any:
        return self._give(store, _POLLABLE, self._elapsed_ns + duration)

    def subscribe_now(self, store: Any, _stream: Any) -> Any:
        return self._give(store, _POLLABLE, 0)

    def block(self, _store: object, pollable: int) -> None:
        self._sleep_until(self._handles.get(pollable, 0))

    def poll(self, _store: object, pollables: list[int]) -> list[int]:
        due = [self._handles.get(pollable, 0) for pollable in pollables]
        if not due:
            raise self._deny("poll without anything to wait for")
        self._sleep_until(min(due))
        return [number for number, when in enumerate(due) if when <= self._elapsed_ns]

    def _sleep_until(self, due_ns: int) -> None:
        """Sleeping takes no time here: it moves the clock, and counts against the row's wall limit."""
        self._look()
        wait_ns = max(0, due_ns - self._elapsed_ns)
        if not self._may_sleep(self.slept_ns + wait_ns):
            raise self._deny(SLEEP)
        self.slept_ns += wait_ns
        self._elapsed_ns += wait_ns

    # -- randomness and environment -----------------------------------------------------------------------------
    def random_bytes(self, _store: object, size: int) -> bytes:
        if size > _RANDOM_BYTES:
            raise self._deny("more random bytes than the sandbox gives at once")
        self._look()
        if self._random is None:
            self._random = random.Random(self._seed())  # noqa: S311 - predictable on purpose
        return self._random.randbytes(size)

    def nothing(self, _store: object) -> list[Any]:
        return []

    def network(self, store: Any) -> Any:
        """A network handle, because libc asks for one before it looks a name up: every use of it is refused."""
        return self._give(store, _NETWORK, _NOWHERE)

    def directories(self, store: Any) -> list[tuple[Any, str]]:
        """A root directory in which every operation is refused, so that `open` says `PermissionError`."""
        return [(self._give(store, _DESCRIPTOR, _NOWHERE), "/")]

    def no_terminal(self, _store: object) -> None:
        return None

    def exit(self, _store: object, _status: object) -> None:
        raise self._deny(EXIT)

    # -- raw streams: what bypasses sys.stdout, such as os.write(1, ...) ------------------------------------------
    def stdin(self, store: Any) -> Any:
        return self._give(store, _INPUT, _STDIN)

    def stdout(self, store: Any) -> Any:
        return self._give(store, _OUTPUT, _STDOUT)

    def stderr(self, store: Any) -> Any:
        return self._give(store, _OUTPUT, _STDERR)

    def read(self, _store: object, _stream: object, _size: int) -> None:
        return None  # the stream error "closed": standard input is at its end

    def check_write(self, _store: object, _stream: object) -> int:
        return _STREAM_CHUNK_BYTES

    def write(self, _store: object, stream: int, contents: bytes) -> Variant:
        self._look()
        self.wrote = True
        what = self._handles.get(stream, _NOWHERE)
        kept = self._output.get(what, bytearray())
        kept += contents[: max(0, self._most_output.get(what, 0) - len(kept))]
        return Variant("ok")

    def flush(self, _store: object, _stream: object) -> Variant:
        return Variant("ok")

    def _deny(self, what: str) -> Denied:
        self.denial = what
        return Denied(what)

    def served(self) -> dict[str, dict[str, Callable[..., Any]]]:
        """The doors that open, by interface and function."""
        return {
            "wasi:clocks/monotonic-clock": {
                "now": self.monotonic_now,
                "resolution": self.resolution,
                "subscribe-instant": self.subscribe_instant,
                "subscribe-duration": self.subscribe_duration,
            },
            "wasi:clocks/wall-clock": {"now": self.wall_now, "resolution": self.wall_resolution},
            "wasi:io/poll": {"poll": self.poll, "[method]pollable.block": self.block},
            "wasi:random/random": {"get-random-bytes": self.random_bytes},
            "wasi:cli/environment": {"get-environment": self.nothing, "get-arguments": self.nothing},
            "wasi:filesystem/preopens": {"get-directories": self.directories},
            "wasi:sockets/instance-network": {"instance-network": self.network},
            "wasi:cli/terminal-stdin": {"get-terminal-stdin": self.no_terminal},
            "wasi:cli/terminal-stdout": {"get-terminal-stdout": self.no_terminal},
            "wasi:cli/terminal-stderr": {"get-terminal-stderr": self.no_terminal},
            "wasi:cli/exit": {"exit": self.exit},
            "wasi:cli/stdin": {"get-stdin": self.stdin},
            "wasi:cli/stdout": {"get-stdout": self.stdout},
            "wasi:cli/stderr": {"get-stderr": self.stderr},
            "wasi:io/streams": {
                "[method]input-stream.read": self.read,
                "[method]input-stream.subscribe": self.subscribe_now,
                "[method]output-stream.check-write": self.check_write,
                "[method]output-stream.write": self.write,
                "[method]output-stream.blocking-write-and-flush": self.write,
                "[method]output-stream.blocking-flush": self.flush,
                "[method]output-stream.subscribe": self.subscribe_now,
            },
        }


def _datetime(nanoseconds: int) -> Record:
    moment: Any = Record()
    moment.seconds, moment.nanoseconds = divmod(nanoseconds, _NS)
    return cast("Record", moment)


class Door(NamedTuple):
    """One import of the guest, and what it answers when nobody serves it: None is a trap."""

    name: str
    is_resource: bool
    refusal: Variant | str | None


@cache
def doors(engine: Engine, component: Component) -> dict[str, list[Door]]:
    """What the guest imports, by interface. wasmtime spells the types out at every look, so there is one."""
    return {
        interface: [_door(name, export.ty) for name, export in item.ty.exports(engine).items()]
        for interface, item in component.type.imports(engine).items()
        if isinstance(item.ty, ComponentInstanceType)
    }


def _door(name: str, item: object) -> Door:
    return Door(name, isinstance(item, ResourceType), _refusal(item) if isinstance(item, FuncType) else None)


def link(engine: Engine, component: Component, world: World) -> Linker:
    """A linker whose every import is served by the world, refused, or a trap."""
    linker = Linker(engine)
    linker.allow_shadowing = True
    linker.define_unknown_imports_as_traps(component)
    served = world.served()
    for interface, imports in doors(engine, component).items():
        functions = served.get(interface.partition("@")[0], {})
        with linker.root() as root, root.add_instance(interface) as instance:
            for door in imports:
                _define(instance, door, functions.get(door.name), world)
    return linker


def _define(instance: LinkerInstance, door: Door, function: Callable[..., Any] | None, world: World) -> None:
    if door.is_resource:
        if door.name in _RESOURCES:
            instance.add_resource(door.name, ResourceType.host(_RESOURCES[door.name]), world.drop)
    elif function is not None:
        instance.add_func(door.name, _with_plain_handles(function))
    elif door.refusal is not None:
        instance.add_func(door.name, _with_plain_handles(lambda _store, *_arguments: door.refusal))


def _with_plain_handles(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives the function the number behind each handle. Taking it also returns the loan, which wasmtime demands."""

    def plain(store: Any, argument: Any) -> Any:
        if isinstance(argument, ResourceAny):
            return argument.to_host(store).rep
        if isinstance(argument, list):
            return [plain(store, item) for item in argument]
        return argument

    return lambda store, *arguments: function(store, *(plain(store, argument) for argument in arguments))


def _refusal(function: FuncType) -> Variant | str | None:
    """The answer "you may not", where the interface has a word for it."""
    result = function.result
    if not (isinstance(result, ResultType) and isinstance(result.err, EnumType)):
        return None
    names = result.err.names
    code = next((code for code in _REFUSALS if code in names), None)
    if code is None:
        return None
    # wasmtime wants a tag only where the types of the two cases do not tell them apart.
    return Variant("err", code) if result._tagged() else code
