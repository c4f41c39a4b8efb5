"""How much memory a process has, whatever it says itself: a cgroup for it, or else a thread that looks at it."""

import contextlib
import errno
import functools
import itertools
import os
import re
import resource
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from msgspec import Struct

_NAME = re.compile(r"evalcell-deno-(\d+)-(\d+)-(\d+)-\d+")
"""Its owner: the namespace that his number is from, the number, and when he started, since numbers are used again."""
_LOOK_MILLISECONDS = 8
_REMOVAL_SECONDS, _REMOVAL_NAP_SECONDS = 1.0, 0.002
_NEAR_BYTES = 1 << 20
"""What does not fit may be several pages at once."""
_START_FIELD = 19
"""Of `/proc/<pid>/stat`, after the name, which may hold spaces and brackets."""

_count = itertools.count()


class _Kind(Struct, frozen=True):
    """The files by which one version of cgroups is told, and tells."""

    members: str
    limit: str
    with_swap: str
    swap_too: bool
    """Whether the limit of swap is one of memory and swap together."""
    used: str
    strikes: tuple[str, str]
    """Where it is counted how often a process in the group was killed for want of memory, anybody's."""
    overruns: tuple[str, str]
    """Where it is counted how often the group's own limit was reached: a group above it may be out of memory too."""
    peak: str
    """Where there is nothing of the kind, the most that was used."""


_VERSION_1 = _Kind(
    members="tasks",  # as good for a single thread, and spares it a lock for which the whole machine comes to rest
    limit="memory.limit_in_bytes",
    with_swap="memory.memsw.limit_in_bytes",
    swap_too=True,
    used="memory.usage_in_bytes",
    strikes=("memory.oom_control", "oom_kill"),
    overruns=("", ""),  # memory.failcnt stays at 0 on newer kernels
    peak="memory.max_usage_in_bytes",
)
_VERSION_2 = _Kind(
    members="cgroup.procs",
    limit="memory.max",
    with_swap="memory.swap.max",
    swap_too=False,
    used="memory.current",
    strikes=("memory.events", "oom_kill"),
    overruns=("memory.events", "oom"),
    peak="",
)


class Home(Struct, frozen=True):
    """A directory in which groups may be made."""

    path: Path
    kind: _Kind


class MemoryGroup:
    """A cgroup for one process, which has to join it itself.

    Raises:
        OSError: There can be none here; `home()` is None where that is known beforehand.
    """

    def __init__(self, home: Home, limit_bytes: int) -> None:
        self._kind = home.kind
        self.path = home.path / f"evalcell-deno-{_own_namespace()}-{os.getpid()}-{_started(os.getpid())}-{next(_count)}"
        self.path.mkdir()
        try:
            self.limit(limit_bytes)
        except OSError:
            self.close()
            raise

    @property
    def members(self) -> Path:
        """Where a process that has one thread writes 0 to join."""
        return self.path / self._kind.members

    def limit(self, most_bytes: int) -> None:
        """Sets how much it may use in all, swap included."""
        swap = most_bytes if self._kind.swap_too else 0
        try:
            self._set(self._kind.limit, most_bytes)
        except OSError as error:
            if not self._kind.swap_too or error.errno != errno.EINVAL:
                raise
            self._set(self._kind.with_swap, swap)  # memory must not exceed it, and is being raised
            self._set(self._kind.limit, most_bytes)
        with contextlib.suppress(FileNotFoundError):  # swap is not counted here, or there is none
            self._set(self._kind.with_swap, swap)
        if self._kind.peak:
            self._set(self._kind.peak, 0)

    def used_bytes(self) -> int:
        return self._counted(self._kind.used)

    def struck(self) -> bool:
        """Whether a process in it was killed because the group had reached its limit."""
        return self._counted(*self._kind.strikes) > 0 and self._overran()

    def _overran(self) -> bool:
        if self._kind.peak:
            return self._counted(self._kind.peak) + _NEAR_BYTES >= self._counted(self._kind.limit)
        return self._counted(*self._kind.overruns) > 0

    def close(self) -> None:
        """Removes it. A process that has just ended may be in it for a moment longer."""
        _remove(self.path, _REMOVAL_SECONDS)

    def _set(self, name: str, value: int) -> None:
        descriptor = os.open(self.path / name, os.O_WRONLY)  # never creates one where the kernel has none
        try:
            os.write(descriptor, b"%d" % value)
        finally:
            os.close(descriptor)

    def _counted(self, name: str, key: str = "") -> int:
        """The number in a file, or in its line that begins so."""
        lines = (self.path / name).read_text().splitlines()
        return next((int(line.split()[-1]) for line in lines if line.startswith(f"{key} ") or not key), 0)


@functools.cache
def home() -> Home | None:
    """Where this process may make groups, if anywhere."""
    if sys.platform != "linux":
        return None
    with contextlib.suppress(OSError):
        candidates = places(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
        return next(filter(_usable, candidates), None)
    return None


def places(cgroups: str, mounts: str) -> Iterator[Home]:
    """Where groups could be made, by what the kernel says of this process and of what is mounted.

    In version 2, a group that holds processes has none below it with a limit, unless it is the root. So ours are beside
    our own, if those above let us.
    """
    for line in cgroups.splitlines():
        _, controllers, own = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield from (Home(path, _VERSION_1) for path in _mounted(mounts, "cgroup", own, controllers))
        elif not controllers:
            for path in _mounted(mounts, "cgroup2", own, ""):
                yield Home(path, _VERSION_2)
                if own != "/":
                    yield Home(path.parent, _VERSION_2)


def _mounted(mounts: str, file_system: str, own: str, controllers: str) -> Iterator[Path]:
    """Our own group's directory, under each mount that shows it."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        (root, point), (kind, _, options) = before.split()[3:5], after.split()[:3]
        shown = PurePosixPath(own).is_relative_to(root)
        if kind == file_system and shown and set(controllers.split(",")) & {"", *options.split(",")}:
            yield Path(point) / PurePosixPath(own).relative_to(root)


def _usable(place: Home) -> bool:
    try:
        group = MemoryGroup(place, 1 << 30)
    except OSError:
        return False
    group.close()
    return True


def sweep() -> None:
    """Removes the groups whose owner is no more. One that is not empty stays: somebody uses it, whoever that be."""
    place = home()
    if place is None:
        return
    for path in place.path.iterdir():
        named = _NAME.fullmatch(path.name)
        if named and int(named[1]) == _own_namespace() and _started(int(named[2])) != int(named[3]):
            _remove(path, 0)


def _remove(path: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() >= until:
                return
            time.sleep(_REMOVAL_NAP_SECONDS)


def _own_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """When the process was started, in ticks since the machine was."""
    try:
        said = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(said.rpartition(b")")[2].split()[_START_FIELD])


class Watch:
    """Looks at a process's size many times a second, and kills it when it is over the limit.

    What is not in its size is not seen, as buffers of pipes, and it may grow by some ten megabytes between two looks.
    """

    def __init__(self, pid: int, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.struck = False
        if sys.platform == "linux":
            self._sizes = os.open(
                f"/proc/{pid}/statm", os.O_RDONLY
            )  # of this process alone, though its number be used again
            self._process = os.pidfd_open(pid)
            self._thread = threading.Thread(target=self._look, name="evalcell-memory", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Once the process is dead, and only once."""
        if sys.platform == "linux":
            self._thread.join()
            os.close(self._process)
            os.close(self._sizes)

    def _look(self) -> None:
        if sys.platform == "linux":
            ended = select.poll()
            ended.register(self._process, select.POLLIN)
            while not ended.poll(_LOOK_MILLISECONDS):
                if not self.struck and self.used_bytes() > self.limit_bytes:
                    self.struck = True
                    signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def used_bytes(self) -> int:
        """Nothing, once the process is dead."""
        if sys.platform == "linux":
            with contextlib.suppress(ProcessLookupError, IndexError):
                return int(os.pread(self._sizes, 256, 0).split()[1]) * resource.getpagesize()
        return 0
