"""One process behind all the limits that this machine's system has, and what is known of it from outside.

It is the second wall around evaluators in Deno, whose own permissions are the first. It is built against an attacker
who has broken out of V8 and runs native code in that process: nothing is there for him to open, to reach or to signal.
"""

import contextlib
import functools
import os
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from evalcell_sandboxes.deno import libraries, memory, starting
from evalcell_sandboxes.errors import SandboxFault

_STARTING_BYTES = 512 << 20
"""What Deno may use before it is ready. It needs much less, but the pages of its program count too where nobody has
read them before."""
_SLACK_BYTES = 16 << 20
"""What the process may use beyond: compiled code, the stacks of threads, tables of pages."""
_UNTOUCHED_BYTES = 128 << 20
"""What it may have besides of memory that is reserved and never touched, as stacks. More than that, so that what is
touched meets the other limit first, which can tell that it was memory."""
_PROBE_SECONDS = 30.0
_KIB = 1024

HIDING = "Landlock (Linux 5.13 or newer)"
"""What hides files from a jailed process, in words."""
_NEEDED = {
    "group": "a memory cgroup of its own (cgroups that this user may write)",
    "namespaces": "an empty network namespace (root, or user namespaces for everybody)",
    "landlock": HIDING,
    "filter": "the list of system calls (x86_64 or aarch64)",
}
"""What may be missing. All else is on every Linux."""
_NOT_LINUX = "the walls of Linux around files, network, system calls and memory"


class Jail:
    """Starts the command, confined. If that fails, it ends with 125 and says on standard error what failed."""

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], readable: Sequence[Path], memory_bytes: int
    ) -> None:
        missing = _missing()
        self._memory_bytes = memory_bytes
        self._out_of_memory = False
        place = None if "group" in missing else memory.home()
        self._group = memory.MemoryGroup(place, memory_bytes + _STARTING_BYTES) if place else None
        self._watch: memory.Watch | None = None
        try:
            settings = _settings(command, environment, readable, missing, self._group)
            self.process = starting.start([*settings, "--", *command])
        except BaseException:
            self._remove_group()
            raise
        if self._group is None:
            self._watch_size()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def settle(self) -> None:
        """From now on the process may use that much memory more than it has now, and 16 MiB for what that brings along.

        Memory that is never touched has a limit too, so that an array of gigabytes is refused at once.
        """
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it is dead, as its pipes will tell
            if self._group:
                self._group.limit(self._group.used_bytes() + self._memory_bytes + _SLACK_BYTES)
            if self._watch:
                self._watch.limit_bytes = self._watch.used_bytes() + self._memory_bytes + _SLACK_BYTES
            self._limit_data()

    def ran_out_of_memory(self) -> bool:
        """Once it is dead: whether it was killed for using more memory than it may."""
        if self._group:
            return self._group.struck()
        return self._out_of_memory or (self._watch is not None and self._watch.struck)

    def held_bytes(self) -> int | None:
        """The memory that it has now; None where that is not known, as of the dead."""
        return self._status("VmRSS")

    def peak_bytes(self) -> int | None:
        """The most memory that it had at a time since the last `reset_peak`; None as above."""
        return self._status("VmHWM")

    def reset_peak(self) -> None:
        if sys.platform == "linux" and self.process.returncode is None:
            with contextlib.suppress(OSError):
                Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float | None:
        """The time that all its threads have had on processors."""
        if sys.platform != "linux" or self.process.returncode is not None:
            return None
        with contextlib.suppress(OSError):
            return time.clock_gettime(~self.process.pid << 3 | 2)
        return None

    def close(self) -> None:
        """Ends it, at once, and leaves nothing behind. May be called again."""
        if self.process.returncode is None:
            with contextlib.suppress(
                ProcessLookupError, PermissionError
            ):  # it is dead; the latter is how macOS says so
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):  # what was not written yet reaches nobody
                if pipe:
                    pipe.close()
        self._out_of_memory = self.ran_out_of_memory()
        if self._watch:
            self._watch.close()
            self._watch = None
        self._remove_group()

    def _watch_size(self) -> None:
        try:
            self._watch = memory.Watch(self.process.pid, self._memory_bytes + _STARTING_BYTES)
        except BaseException:  # nothing would hold it then
            self.close()
            raise

    def _remove_group(self) -> None:
        if self._group:
            self._group.close()
            self._group = None

    def _limit_data(self) -> None:
        has = self._status("VmData")
        if sys.platform == "linux" and has is not None:
            most = has + self._memory_bytes + _SLACK_BYTES + _UNTOUCHED_BYTES
            resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (most, most))

    def _status(self, name: str) -> int | None:
        """What the kernel says of it in bytes. Not once it is waited for: its number may be another one's."""
        if sys.platform != "linux" or self.process.returncode is not None:
            return None
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.process.pid}/status").read_bytes().splitlines():
                if line.startswith(name.encode() + b":"):
                    return int(line.split()[1]) * _KIB
        return None


def lacking() -> tuple[str, ...]:
    """What cannot be had on this machine, in words."""
    if sys.platform != "linux":
        return (_NOT_LINUX,)
    return tuple(phrase for wall, phrase in _NEEDED.items() if wall in _missing())


def hides_files() -> bool:
    """Whether a jailed process can read no file but those that it needs."""
    return sys.platform == "linux" and "landlock" not in _missing()


def sweep() -> None:
    """Removes what was left behind by processes that were killed."""
    memory.sweep()


@functools.cache
def _missing() -> frozenset[str]:
    """The walls that cannot be raised here, by their names in the launcher. A process tries them all out.

    Found out once, and not at every start: where a wall stood before, a failure to raise it is one, and nothing starts.

    Raises:
        SandboxFault: Something is missing without which there is no wall at all.
    """
    if sys.platform != "linux":
        return frozenset()
    place = memory.home()
    group = memory.MemoryGroup(place, _STARTING_BYTES) if place else None
    try:
        settings = _settings([sys.executable], {}, [], frozenset(), group)
        with starting.start(["probe", *settings, "--"]) as tried:
            said, complaint = tried.communicate(timeout=_PROBE_SECONDS)
    finally:
        if group:
            group.close()
    missing = frozenset(line.partition("=")[0] for line in said.decode(errors="replace").splitlines())
    if tried.returncode or not missing <= _NEEDED.keys():
        raise SandboxFault(f"A process cannot be confined here: {(said + complaint).decode(errors='replace').strip()}")
    return missing if group else missing | {"group"}


def _settings(
    command: Sequence[str],
    environment: Mapping[str, str],
    readable: Sequence[Path],
    missing: frozenset[str],
    group: memory.MemoryGroup | None,
) -> list[str]:
    """The command's walls, as the launcher takes them."""
    loaded = () if "landlock" in missing else libraries.needed(command[0], tuple(environment.items()))
    return [
        f"starter={os.getpid()}",
        *([f"group={group.members}"] if group else []),
        *(f"without={wall}" for wall in sorted(missing)),
        *(f"executable={path}" for path in (command[0], *loaded[:1])),
        *(f"readable={path}" for path in (*loaded[1:], *readable)),
        *(f"environment={name}={value}" for name, value in environment.items()),
    ]
