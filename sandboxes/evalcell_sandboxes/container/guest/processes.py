"""The processes of the container as the supervisor sees them: who is there, who is to go, and what ended them."""

import contextlib
import functools
import operator
import os
import signal
import time

_OUTRUN_SECONDS = 1.0
"""How long processes may be ended one by one. What is still there then multiplies faster than that."""
_SWEEP_SECONDS = 0.002
_MOST_ENDS = 4096
"""So many are remembered, of those that are gone."""
_OOM_FILES = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
"""Where the kernel counts what it has killed for want of memory: with version 2 of control groups, and with 1."""


class Processes:
    """Everything that lives in this container. `zygote` is 0 once it is gone, and `keeper` while there is none."""

    def __init__(self, zygote: int) -> None:
        self.zygote = zygote
        self.zygote_status = None
        self.keeper = 0
        self._expected_signals = 0
        self._stops = {}
        self._ends = {}
        self._oom_kills = _oom_kills()

    def others(self) -> list:
        """All but our own and the dead: those that nobody waits for are gone with their parent."""
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if pid not in (1, self.zygote, self.keeper) and not _is_dead(pid)]

    def end_others(self) -> None:
        """Ends all that rows have started; what multiplies faster than that goes with the zygote."""
        until = time.monotonic() + _OUTRUN_SECONDS
        while others := self.others():
            if time.monotonic() > until:
                self.end_all()
                return
            for pid in others:
                _kill(pid)
            self._reap()
            time.sleep(_SWEEP_SECONDS)

    def end_all(self) -> None:
        """Ends every process but this one, at one blow."""
        while self.zygote or self.keeper or self.others():
            _kill(-1)
            self._reap()
            time.sleep(_SWEEP_SECONDS)

    def zygote_lives(self) -> bool:
        self._reap()
        return bool(self.zygote)

    def zygote_is_stopped(self) -> bool:
        return _state(self.zygote) in ("T", "t")

    def zygote_is_disturbed(self) -> bool:
        """Whether it was stopped, or sent a signal. Those that it lets in are about to stop it; others would stay."""
        return self.zygote_is_stopped() or bool(_waiting_signals(self.zygote) & ~self._expected_signals)

    def expect_signals(self) -> None:
        """Makes those that wait for the zygote now a part of what it is."""
        self._expected_signals = _waiting_signals(self.zygote)

    def end_keeper(self) -> None:
        self.keeper = 0
        self.end_others()

    def stopped(self, pid: int):
        """At what it has stopped for us since this was last asked, if it has; 0 when it is gone."""
        self._reap()
        return 0 if pid in self._ends else self._stops.pop(pid, None)

    def has_stopped(self, pid: int) -> bool:
        """Whether it has stopped for us."""
        self._reap()
        return pid in self._stops

    def ended(self, pid: int):
        """How it has ended and what it has used, if it has."""
        self._reap()
        return self._ends.get(pid)

    def forget(self) -> None:
        """Forgets those that are gone: their numbers may come again."""
        self._reap()
        self._stops.clear()
        self._ends.clear()

    def threads(self, pid: int) -> int:
        try:
            return len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            return 0

    def _reap(self) -> None:
        """Takes leave of those that are gone: also of rows' processes whose own parents are."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return
                if os.WIFSTOPPED(status):
                    self._stops[pid] = status >> 8
                else:
                    if len(self._ends) == _MOST_ENDS:
                        del self._ends[next(iter(self._ends))]
                    self._ends[pid] = status, usage
                    if pid == self.zygote:
                        self.zygote, self.zygote_status = 0, status
                    elif pid == self.keeper:
                        self.keeper = 0  # from now on the number may be anybody's

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed one of them for that since it was last asked."""
        before, self._oom_kills = self._oom_kills, _oom_kills()
        return self._oom_kills > before


def _is_dead(pid: int) -> bool:
    """Whether it only waits for its parent to take notice. Its first thread may have ended while others go on."""
    try:
        return _state(pid) in ("Z", "X", "") and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


def _state(pid: int) -> str:
    """What a process is doing, in one letter; nothing when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # in which a process may name itself by any bytes
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return ""


def _waiting_signals(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            found = [int(line.split()[1], 16) for line in status if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except OSError:
        return 0
    return functools.reduce(operator.or_, found, 0)  # gVisor does not tell; no fork inherits them


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _oom_kills() -> int:
    for path in _OOM_FILES:
        with contextlib.suppress(OSError), open(path) as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
