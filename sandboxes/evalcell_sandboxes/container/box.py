"""One locked-down container with our supervisor in it, and the conversation with that."""

import contextlib
import hashlib
import json
import secrets
import select
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcell_sandboxes.caching import cache_dir, private_dir, replacing
from evalcell_sandboxes.container import answers
from evalcell_sandboxes.container.engine import OWNER, Engine, owner
from evalcell_sandboxes.container.failure import EngineGone
from evalcell_sandboxes.container.guest import wire
from evalcell_sandboxes.container.seccomp import KEEPING, profile
from evalcell_sandboxes.errors import SandboxError, SandboxFault, SandboxUnavailable
from evalcell_sandboxes.program import Network

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evalcell_sandboxes.container.bases import Base

MIB = 1024**2
_FIRST_USER, _USERS = 20_000, 40_000
SCRATCH_BYTES = 64 * MIB
_OWN_BYTES = 64 * MIB
"""What the supervisor and its buffers may take up beside the program."""
_MOST_PROCESSES = 128
_MOST_WITH_KERNEL = 512
"""Of processes, where a container has a kernel of its own: what that is made of is counted too."""
_ULIMITS = {"core": 0, "msgqueue": 0, "nofile": 8192, "nproc": 4096}
"""Of descriptors, user code has fewer: those on their way through sockets are counted for PID 1 too. Podman asks for
more of both files and processes than it may have itself, unless it is told."""
_BRIDGE = "bridge"
SCRATCH = "/tmp"  # noqa: S108 - the container's own
_SCRATCH_FILES = 10_000
_ROOT = 0
_POWERS = ("SETUID", "SETGID", "KILL", "FOWNER", "DAC_OVERRIDE")
"""What PID 1 may do where it is root and no other process is: have them be somebody else, end them, tidy up after them.
That is the kernel of the container's own, which this is no power over; and it never loads user code."""
_PAGE_BYTES = 4096
_CORES = 1.0
_CHUNK_BYTES = 256 * 1024
_GRACE_SECONDS = 20.0
_STREAM = struct.Struct("!BxxxI")
_STDOUT = 1
_KILLED = "137"
_REMOVE_SECONDS = 10
_STDERR_CHARACTERS = 2_000

# Reads our modules from the host, so that no image carries them and none can be shadowed by what an image carries.
_BOOTSTRAP = """
import builtins, json, os, sys, types
sys.path[:] = [place for place in sys.path if place]
def read(size):
    parts = b""
    while len(parts) < size:
        part = os.read(0, size - len(parts))
        if not part: os._exit(0)
        parts += part
    return parts
bundle = json.loads(read(int.from_bytes(read(4), "big")))
for name, source in bundle["modules"].items():
    module = sys.modules[name] = types.ModuleType(name)
    module.__builtins__ = dict(vars(builtins))  # so that what a row bends is not what we work with
    exec(compile(source, f"<evalcell {name}>", "exec"), module.__dict__)
main, settings = sys.modules["supervisor"].main, bundle["settings"]
for name in bundle["modules"]: del sys.modules[name]
del bundle, module, name, source, read
main(settings)
"""
_MODULES = (
    "callers", "describing", "failures", "lots", "results",
    "wire", "kernel", "filters", "notices", "room", "pages", "prints", "scratch", "calls", "processes",
    "snapshot", "keeper", "evaluating", "zygote", "forks", "supervisor",
)  # fmt: skip
"""Ours, in the order in which they are executed."""
_HERE = Path(__file__).resolve().parent


class OutOfMemory(SandboxFault):
    """The container, with PID 1 in it, was ended because what it held had used up its memory."""


class Record(NamedTuple):
    """What the supervisor said of a call."""

    kind: int
    wall_seconds: float
    cpu_seconds: float
    memory_bytes: int
    report: bytes
    stdout: bytes
    stderr: bytes


@cache
def modules() -> Mapping[str, str]:
    """The sources of what runs inside, by name."""
    places = (_HERE.parent / "guest", _HERE / "guest")
    return {name: _source(name, places) for name in _MODULES}


def _source(name: str, places: "Iterable[Path]") -> str:
    return next(path for place in places if (path := place / f"{name}.py").exists()).read_text(encoding="utf-8")


class Box:
    """A running container, until it is closed. It ends by itself when this process is gone."""

    def __init__(
        self, engine: Engine, base: "Base", image: str, settings: dict[str, Any], network: Network = Network.NONE
    ) -> None:
        self._engine = engine
        keeps = settings["fresh_rows"] and base.keeps and base.machine in KEEPING
        user = _nobody()
        told = {**settings, "keeps": keeps, "user": user if base.exposed else None}
        bundle = {"modules": dict(modules()), "settings": told}
        self._bundle = json.dumps(bundle).encode()
        self._chunk = memoryview(bytearray(_CHUNK_BYTES))
        self._pending = bytearray()
        self._stream = bytearray()
        self._said = ""
        self._began = int(time.time())
        shape = Shape(
            memory_bytes=settings["limits"]["memory_bytes"] + SCRATCH_BYTES + _OWN_BYTES,
            user=_ROOT if base.exposed else user,
            powers=_POWERS if base.exposed else (),
            network=network,
            stdin=True,
            keeps=keeps,
            own_kernel=base.own_kernel,
        )
        with self._engine.translated("a container was started"):
            self._name = create(engine, image, [base.command, "-s", "-S", "-B", "-c", _BOOTSTRAP], shape)
            try:
                params = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                self._attached = self._engine.api.attach_socket(self._name, params=params)
                self._socket: socket.socket = getattr(self._attached, "_sock", self._attached)
                self._engine.api.start(self._name)
                self._write(wire.frame(self._bundle))
            except BaseException:
                self._remove()
                raise

    def close(self) -> None:
        """Ends the container, and comes back when it is removed."""
        self._remove()
        self._attached.close()
        self._socket.close()
        if self._attached is self._socket:  # as with TLS, where the answer that it came in keeps it open
            self._attached._response.close()  # type: ignore[attr-defined]  # noqa: SLF001 - docker put it there

    def _remove(self) -> None:
        for remove in (
            lambda: self._engine.api.remove_container(self._name, force=True, v=True),
            lambda: self._engine.api.wait(self._name, timeout=_REMOVE_SECONDS, condition="removed"),
            lambda: self._engine.discard(self._name),
        ):
            with contextlib.suppress(Exception):  # it may be gone already, or just going, and the engine too
                remove()

    def renew(self) -> None:
        """Has the supervisor start from the beginning."""
        self.send(wire.RENEW)
        self._write(wire.frame(self._bundle))

    def send(self, command: bytes, body: bytes = b"") -> None:
        self._write(wire.frame(command + body))

    def _write(self, data: bytes) -> None:
        try:
            self._socket.settimeout(_GRACE_SECONDS)
            self._socket.sendall(data)
        except OSError as error:
            raise SandboxFault(f"A container does not take anything in any more: {error}.{self._said}") from error

    def receive(self, seconds: float) -> list[Record]:
        """The records that have arrived, at least one. `seconds` is how long the supervisor lets a call go on.

        Raises:
            SandboxFault: The supervisor is gone, or silent for longer than that.
            SandboxUnavailable: The engine is gone.
        """
        while not (records := self._records()):
            self._read(seconds + _GRACE_SECONDS)
        return records

    def check(self) -> None:
        """Takes in what is there to be heard: also that the container is gone, as `receive` would say."""
        if select.select([self._socket], [], [], 0)[0]:
            self._read(_GRACE_SECONDS)

    def _read(self, seconds: float) -> None:
        self._socket.settimeout(seconds)
        try:
            size = self._socket.recv_into(self._chunk)
        except TimeoutError:
            raise SandboxFault(f"A container has said nothing for {seconds:g} s.") from None
        except OSError as error:
            raise SandboxFault(f"The connection to a container broke: {error}.") from error
        if not size:
            raise self._end()
        self._stream += self._chunk[:size]
        self._take_apart()

    def _end(self) -> SandboxError:
        """What the end of the container means. Out of memory is the program's doing, whichever process it has hit."""
        events: dict[str, str] = {}
        try:
            events = self._engine.patiently(self._last_events)
        except EngineGone as gone:
            return gone
        except SandboxError:  # what has happened is not known, and the end is what counts
            pass
        code = events.get("die")
        if "oom" in events and code == _KILLED:
            return OutOfMemory("A container has used up its memory.")
        how = f" Exit code {code}." if code else ""
        return SandboxFault(f"A container has ended before its time.{how}{self._said}")

    def _last_events(self) -> dict[str, str]:
        """What the engine says has happened to the container, with its exit code; the container itself is gone."""
        found = {}
        with self._engine.translated("a container had ended"):
            now = int(time.time())
            filters = {"container": self._name, "event": ["oom", "die"]}
            events = self._engine.api.events(since=self._began, until=now + 2, filters=filters, decode=True)
            for event in events:
                told = answers.read(event, answers.Event, self._engine.address, "GET /events")
                found[told.action] = str((told.actor.attributes or {}).get("exitCode", ""))
                if "die" in found and (found["die"] != _KILLED or "oom" in found):  # which may come after it
                    break
            events.close()
        return found

    def _take_apart(self) -> None:
        """Splits what the engine sends into what the supervisor wrote to stdout, and its last words."""
        at = 0
        while len(self._stream) - at >= _STREAM.size:
            kind, size = _STREAM.unpack_from(self._stream, at)
            end = at + _STREAM.size + size
            if len(self._stream) < end:
                break
            content = self._stream[at + _STREAM.size : end]
            if kind == _STDOUT:
                self._pending += content
            else:
                said = content.decode(errors="replace")
                self._said = f"{self._said or ' It said: '}{said}"[:_STDERR_CHARACTERS]
            at = end
        del self._stream[:at]

    def _records(self) -> list[Record]:
        found, at, size = [], 0, wire.RECORD.size
        pending = self._pending
        while len(pending) - at >= size:
            kind, wall, cpu, memory, *sizes = wire.RECORD.unpack_from(pending, at)
            start = at + size
            ends = (start + sizes[0], start + sizes[0] + sizes[1], start + sum(sizes))
            if len(pending) < ends[2]:
                break
            parts = (
                bytes(pending[start : ends[0]]),
                bytes(pending[ends[0] : ends[1]]),
                bytes(pending[ends[1] : ends[2]]),
            )
            found.append(Record(kind, wall, cpu, memory, *parts))
            at = ends[2]
        del pending[:at]
        return found


def _nobody() -> int:
    """A user of the container's own: what the kernel counts for each user, one container must not use up for others."""
    return _FIRST_USER + secrets.randbelow(_USERS)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a container is for, as far as that decides how it is held."""

    memory_bytes: int
    user: int = field(default_factory=_nobody)
    powers: tuple[str, ...] = ()
    """What it may do as root."""
    network: Network = Network.NONE
    labels: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = False
    """Whether it is spoken to, and gone when nobody is attached to it any more."""
    logged: bool = False
    """Whether what it says can be read afterwards."""
    builds: bool = False
    """Whether it can be written to, and may use all processors."""
    keeps: bool = False
    """Whether rows are kept in the same memory: PID 1 may look into other processes, and lets no other do so."""
    own_kernel: bool = False
    """Whether it has, or may have, a kernel of its own, whose processes are counted for it."""


def create(engine: Engine, image: str, command: list[str], shape: Shape) -> str:
    """Creates a container in which nothing can be reached and little be used up, and gives its name.

    Raises:
        SandboxUnavailable: The network that it is to have is not there.
    """
    name = f"evalcell-{secrets.token_hex(16)}"
    if shape.network is not Network.NONE:
        _require_bridge(engine)
    try:
        engine.api.create_container(
            image,
            command=command,
            entrypoint=[],
            user=f"{shape.user}:{shape.user}",
            hostname="sandbox",
            working_dir=SCRATCH,
            name=name,
            environment={"PYTHONHASHSEED": "0", "PYTHONPATH": "", "LANG": "C.UTF-8"},
            labels={**shape.labels, OWNER: owner()},
            healthcheck={"test": ["NONE"]},  # what an image has of its own would run beside the rows
            network_disabled=shape.network is Network.NONE,
            stdin_open=shape.stdin,
            host_config=_held(engine, name, shape),
            stop_signal="SIGKILL",
        )
    except BaseException:
        engine.discard(name)
        raise
    return name


def _held(engine: Engine, name: str, shape: Shape) -> dict[str, Any]:
    """Everything that the engine is to hold a container by."""
    from docker.types import LogConfig, Ulimit

    held: dict[str, Any] = engine.api.create_host_config(
        auto_remove=shape.stdin,
        network_mode="none" if shape.network is Network.NONE else _BRIDGE,
        ipc_mode="private" if shape.builds else "none",
        read_only=not shape.builds,
        cap_drop=["ALL"],
        cap_add=list(shape.powers),
        security_opt=["no-new-privileges", f"seccomp={_filter(engine, keeps=shape.keeps)}"],
        pids_limit=_MOST_WITH_KERNEL if shape.own_kernel else _MOST_PROCESSES,
        runtime=engine.runtime or None,
        mem_limit=shape.memory_bytes,
        memswap_limit=shape.memory_bytes,
        nano_cpus=None if shape.builds else int(_CORES * 1e9),
        **_places(engine, name),
        log_config=LogConfig(type="json-file" if shape.logged else "none"),
        ulimits=[Ulimit(name=limit, soft=most, hard=most) for limit, most in _ULIMITS.items()],
        sysctls={"net.ipv4.tcp_max_tw_buckets": "0"},  # else a port stays taken when the row is gone that used it
    )
    return held


def _places(engine: Engine, name: str) -> dict[str, Any]:
    """The one place that can be written to, and nothing else.

    Podman knows neither a number of files nor `noatime`, by which a row could tell that another has read a file, for
    such a place: only for a volume, which it needs a name for. And it makes two more of them unless told.
    """
    if not engine.is_podman:
        size = f"size={SCRATCH_BYTES},nr_inodes={_SCRATCH_FILES}"
        return {"tmpfs": {SCRATCH: f"rw,noexec,nosuid,nodev,{size},mode=1777,noatime"}}
    options = f"nr_blocks={SCRATCH_BYTES // _PAGE_BYTES},nr_inodes={_SCRATCH_FILES},mode=1777,noatime"
    engine.api.create_volume(name, "local", {"type": "tmpfs", "device": "tmpfs", "o": options}, labels={OWNER: owner()})
    shut = "ro,noexec,nosuid,nodev,size=4k"
    return {"binds": [f"{name}:{SCRATCH}:noexec,nosuid,nodev"], "tmpfs": {"/run": shut, "/var/tmp": shut}}  # noqa: S108


def _filter(engine: Engine, *, keeps: bool) -> str:
    """The list of allowed calls, as the engine wants it: Podman has to find it in a file."""
    allowed = profile(engine.machine, keeps=keeps)
    if not engine.is_podman:
        return allowed
    digest = hashlib.sha256(allowed.encode()).hexdigest()[:16]
    path = private_dir(cache_dir() / "container").absolute() / f"seccomp-{digest}.json"
    with replacing(path) as file:
        file.write_text(allowed, encoding="ascii")
    return str(path)


def _require_bridge(engine: Engine) -> None:
    if all(network["Name"] != _BRIDGE for network in engine.api.networks()):  # Podman finds none by its name
        raise SandboxUnavailable(
            "container",
            f"the engine at {engine.address} has no network {_BRIDGE!r}, so code on it can reach nothing. "
            "Start it with one, or run without a network.",
        )
