"""One process of the guest behind its walls, and the conversation with it."""

import contextlib
import os
import select
import struct
import subprocess
import time
from pathlib import Path

from evalcell_sandboxes.deno import prereqs
from evalcell_sandboxes.deno.failure import Deadline, Died, Flooded
from evalcell_sandboxes.deno.jail import Jail
from evalcell_sandboxes.errors import SandboxFault, SandboxUnavailable
from evalcell_sandboxes.outcome import Usage
from evalcell_sandboxes.program import Limits
from evalcell_sandboxes.reports import most_report_bytes

GUEST = Path(__file__).parent / "guest"
SETTINGS, ASSET, DESCRIBE, LOAD, FIT, ROWS, AGGREGATE = b"S", b"A", b"D", b"L", b"F", b"R", b"G"
"""The commands. Settings and assets are not answered, rows by a line or two for each, the others by one."""
_HEAD = struct.Struct("!Ic")
_CHUNK_BYTES = 256 * 1024
_START_SECONDS = 60.0
"""How long a new process may take before it has seen anything of the program's: that is the machinery's time."""
_END_SECONDS = 1.0
_STDERR_BYTES = 8192
_LOOK_SECONDS = 0.002
"""Memory is looked at no more often than this: that takes as long as several small rows."""
_MIB = 1024**2
_KEPT_BYTES = 64 * _MIB
"""What the engine may keep of rows that are over before it tidies up, beside what a program may use."""
_ASSET_FACTOR = 4
"""How much more an asset takes up than it has bytes: it is there as text and in letters, and both are copied once."""

ENVIRONMENT = {
    "DENO_DIR": "/dev/null/none",  # there is none: nothing is kept from one process to another
    "DENO_NO_UPDATE_CHECK": "1",
    "LANG": "en_US.UTF-8",
    "NO_COLOR": "1",
    "TZ": "UTC",
}
"""All of the environment, the same for everybody."""

_ALONE = ("--no-prompt", "--no-remote", "--no-npm", "--cached-only", "--no-config", "--no-lock", "--no-code-cache")


def program() -> str:
    """The path of Deno.

    Raises:
        SandboxUnavailable: It is not installed.
    """
    binary = prereqs.binary()
    if binary is None:
        raise SandboxUnavailable("deno", str(prereqs.unavailable_reason()))
    return str(binary)


def _command(memory_bytes: int) -> list[str]:
    """Deno with the guest, without a permission. V8 makes no code of text, in any realm, and has a heap that ends."""
    flags = f"--v8-flags=--disallow-code-generation-from-strings,--max-old-space-size={memory_bytes // _MIB}"
    return [program(), "run", *_ALONE, flags, str(GUEST / "worker.js")]


class Guest:
    """A process. It is started at once, and ready after `begin`."""

    def __init__(self, memory_bytes: int, shipped_bytes: int = 0) -> None:
        self.memory_bytes = memory_bytes
        self._most_bytes = memory_bytes + _KEPT_BYTES + _ASSET_FACTOR * shipped_bytes
        command = _command(self._most_bytes)
        self._jail = Jail(command, environment=ENVIRONMENT, readable=[GUEST], memory_bytes=self._most_bytes)
        assert self._jail.process.stdin is not None
        assert self._jail.process.stdout is not None
        self._input = self._jail.process.stdin.fileno()
        self._output = self._jail.process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._output, select.POLLIN)
        self._writable.register(self._input, select.POLLOUT)
        self._pending: list[bytes] = []
        """The beginning of a line that has not come to its end."""
        self._begun = False
        self.most_line_bytes = most_report_bytes(Limits())
        """How long a line may be. Honest ones are shorter, whatever user code does."""
        self._looked = 0.0
        self._peak: int | None = None
        self._cpu: float | None = None
        self._base_bytes = 0

    def begin(self) -> None:
        """Waits until the process is ready. From then on it may use as much memory as it was given.

        Raises:
            SandboxFault: It does not come to that.
        """
        if self._begun:
            return
        try:
            self.line(_START_SECONDS)
        except (Died, Deadline) as error:
            raise SandboxFault(f"Deno could not be started: {error}. {self._said()}".strip()) from error
        self._jail.settle()
        self._cpu = self._jail.cpu_seconds()
        self._base_bytes = self._jail.held_bytes() or 0
        self._begun = True

    def close(self) -> None:
        """Ends the process, and with it everything that code inside has ever done."""
        self._jail.close()

    # -- talking ------------------------------------------------------------------------------------------------------
    def send(self, command: bytes, body: bytes, seconds: float) -> None:
        """Sends a frame.

        Raises:
            Died: The process is gone.
            Deadline: It has not taken it within that time.
        """
        until = time.monotonic() + seconds
        left = memoryview(_HEAD.pack(len(body), command) + body)
        while left:
            with contextlib.suppress(BlockingIOError):
                try:
                    left = left[os.write(self._input, left) :]
                except BrokenPipeError:
                    raise Died from None
                continue
            if not self._writable.poll(max(0.0, until - time.monotonic()) * 1000):
                raise Deadline

    def lines(self, until: float) -> list[bytes]:
        """The lines that have come since the last call, one at least.

        Raises:
            Died: The process is gone.
            Deadline: There was none by that time of the monotonic clock.
        """
        while True:
            try:
                found = os.read(self._output, _CHUNK_BYTES)
            except BlockingIOError:
                if not self._readable.poll(max(0.0, until - time.monotonic()) * 1000):
                    raise Deadline from None
                continue
            if not found:
                raise Died
            self._pending.append(found)
            if b"\n" in found:
                *complete, rest = b"".join(self._pending).split(b"\n")
                self._pending = [rest]
                return complete
            if sum(map(len, self._pending)) > self.most_line_bytes:
                self._jail.process.kill()
                raise Flooded
            if time.monotonic() > until:
                raise Deadline

    def line(self, seconds: float) -> bytes:
        """The one line that answers a command. Raises as `lines` does."""
        return self.lines(time.monotonic() + seconds)[0]

    # -- what it used, and how it ended -------------------------------------------------------------------------------
    def usage(self) -> Usage:
        """What was used since the last call, but for the time; the peak of memory is that of the last few moments."""
        before, self._cpu = self._cpu, self._jail.cpu_seconds()
        cpu = (self._cpu or 0.0) - (before or 0.0)
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            self._peak = self._jail.peak_bytes()
            self._jail.reset_peak()
        return Usage(0.0, max(0.0, cpu), self._peak)

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._jail.process.poll() is None

    def holds_much(self) -> bool:
        """Whether so much is left of rows that are over that it might become a later row's problem."""
        held = self._jail.held_bytes()
        return held is not None and held - self._base_bytes > self._most_bytes // 2

    def ending(self) -> tuple[str | None, int]:
        """The limit that it has died of, None where it was none, and its exit code. It is closed."""
        said = self._said()
        try:
            self._jail.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:  # it has closed its end of the connection, and lives on
            self._jail.process.kill()
            self._jail.process.wait()
        limit = None
        if self._jail.ran_out_of_memory() or any(sign in said for sign in _OUT_OF_MEMORY):
            limit = "memory_bytes"
        elif OUT_OF_STACK in said:
            limit = "stack"
        self.close()
        return limit, self._jail.process.returncode

    def _said(self) -> str:
        """What it has left on standard error; user code has no way to write there."""
        stderr = self._jail.process.stderr
        if stderr is None or stderr.closed:
            return ""
        os.set_blocking(stderr.fileno(), False)
        with contextlib.suppress(OSError):
            return os.read(stderr.fileno(), _STDERR_BYTES).decode(errors="replace").strip()
        return ""


_OUT_OF_MEMORY = ("out of memory", "memory allocation of", "Out of memory")
"""What the engine, or the runtime around it, says last when it cannot have the memory that it needs."""
OUT_OF_STACK = "has overflowed its stack"
"""What the runtime says of a source that is nested deeper than its parser can follow."""
