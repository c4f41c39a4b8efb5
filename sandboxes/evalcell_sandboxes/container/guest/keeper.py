"""Rows that start in the same memory, one after the other, because it is put back after each: the supervisor's part.

The keeper is a fork of the zygote that never runs a row itself. It starts a process for each row that shares its memory
and nothing else (`CLONE_VM`), and waits in the kernel until that is gone (`CLONE_VFORK`). There the supervisor holds it
by ptrace, before it has executed one more instruction, puts back the pages that were written to, and has it make the same
call again. So what starts the next row has never run in memory that a row could bend, and all that the kernel keeps for a
process is new: descriptors, signals, timers, limits, counters.

What is left to see to is the memory, and it is sound for these reasons:

- A page that the keeper shares with the zygote is not written to without a page fault, which the kernel counts for the
  row's process. A row without faults has written to no page that was not known before.
- After faults, and after a keeper's first row, all pages are looked at. Those that the keeper shares with no other
  process are those that were written to. Only if all of them were saved before the first row, it goes on.
- Calls that change the map of the memory, start a thread, or do anything else that is not known to be harmless, are told
  to the supervisor (`notices`). A keeper whose row has made one is not used again.
- Nobody can have the keeper run but the supervisor: it is stopped, or asleep in a way that only its end ends.

If it does not go on, the next row has a new keeper, which costs what a fork costs. Pages that rows write to are mostly the
same, so after a few rows it does.
"""

import array
import contextlib
import fcntl
import os
import select
import socket
import termios
import time

import kernel
import wire
from notices import nobody
from snapshot import Snapshot, Unfit

_OPTIONS = kernel.MARK_CALLS | kernel.TRACE_VFORK_DONE | kernel.EXIT_KILL
_SECONDS = 1.0
"""How long any step may take that starts a keeper or has it go on."""
_REAP_SECONDS = 0.05
"""How long a row's process may take to be gone when its memory is nobody's any more."""
_QUICK_LOOKS = 100
_LOOK_SECONDS = 0.001
_SHORT_ROWS, _LONG_ROWS = 4, 16
"""A keeper for fewer rows than the first has not paid; after as many as the second, all is well again."""
_PATIENCE = 16
"""So many keepers may not pay before rows are forked."""
_FORKS, _MOST_DOUBLINGS = 64, 6
"""So many rows, and twice as many each time after, until it is tried again."""


class Refused(Exception):
    """There can be no keeper, or it is none any more."""


class Keeper:
    """One keeper, and the process that waits for the next row."""

    def __init__(self, processes, notices, zygote_control: socket.socket, snapshot: Snapshot) -> None:
        self._processes = processes
        self._notices = notices
        self._snapshot = snapshot
        self._row = 0
        self.rows = 0
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._processes.forget()
        try:
            zygote = self._processes.zygote  # beside which nobody is there yet but what it starts
            self._notices.is_ours = lambda pid, call: (pid == zygote) == (call == kernel.CLONE)
            with theirs:
                socket.send_fds(zygote_control, [wire.KEEP], [theirs.fileno()])
            self.pid = self._met()
            self._notices.is_ours = lambda pid, _: pid == self.pid
            self._registers = self._first_stop()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._notices.is_ours = nobody
        self.control.close()
        self._processes.end_keeper()

    def _met(self) -> int:
        """The keeper's number, when it is ready."""
        waiting = select.poll()
        waiting.register(self.control, select.POLLIN)
        self._notices.poll(waiting, time.monotonic() + _SECONDS)
        said = self.control.recv(16, socket.MSG_DONTWAIT)
        others = self._processes.others()
        if not said or others != [int(said)]:
            raise Refused
        self._processes.keeper = others[0]
        return others[0]

    def _first_stop(self) -> array.array:
        """Has it start the process of its first row, and saves the memory before that has executed anything."""
        kernel.seize(self.pid, _OPTIONS | kernel.TRACE_VFORK)
        self.control.send(b"\0")
        self._await_stop(self.pid, kernel.VFORK_STOP)
        row = kernel.event_process(self.pid)
        self._await_stop(row, kernel.FIRST_STOP)
        self._snapshot.save(self.pid)
        registers = kernel.registers(self.pid)
        kernel.set_options(self.pid, _OPTIONS)
        self._notices.unusual = False
        kernel.go_on(self.pid)
        kernel.detach(row)
        return registers

    def _await_stop(self, pid: int, expected: int) -> None:
        until = time.monotonic() + _SECONDS
        looks = _looks(self._notices)
        while (stop := self._processes.stopped(pid)) is None and time.monotonic() < until:
            next(looks)
        if stop != expected:
            raise Refused

    # -- what is asked of whatever runs rows -------------------------------------------------------------------------
    def has_ended(self) -> bool:
        """Whether there is no process for a row any more, which may have ended before it could say so."""
        return self._processes.has_stopped(self.pid)

    def gone(self, until: float) -> bool:
        """Whether the row's process is gone by then, and the keeper has stopped."""
        looks = _looks(self._notices)
        while (stop := self._processes.stopped(self.pid)) is None:
            if time.monotonic() > until:
                return False
            next(looks)
        with contextlib.suppress(OSError):  # somebody has just ended it
            self._row = kernel.event_process(self.pid) if stop == kernel.VFORK_DONE_STOP else 0
        return True

    def status(self):
        """How the row's process ended: its wait status, CPU seconds and peak of memory. Nothing if nobody knows."""
        if not self._row:
            self.gone(time.monotonic() + _SECONDS)
        if not self._row or not self._is_reaped():
            return None
        status, usage = self._processes.ended(self._row)
        return status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024

    def _is_reaped(self) -> bool:
        """Whether the row's process has come to its end. If not, it runs another program, in memory of its own."""
        looks = _looks(self._notices)
        for seconds in (_REAP_SECONDS, _SECONDS):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if self._processes.ended(self._row):
                    return True
                next(looks)
            self._processes.end_others()
        self._row = 0  # nor is it ours: the module has bent what starts it
        return False

    # -- between two rows --------------------------------------------------------------------------------------------
    def put_back(self) -> bool:
        """Makes everything as it was before the row, and has the next one's process start. False if it cannot."""
        self.rows += 1
        try:
            if not self._row or self._notices.unusual or not self._command_is_taken():
                return False
            _, usage = self._processes.ended(self._row)
            self._processes.forget()
            self._row = 0
            self._open_up()
            looks = usage.ru_minflt or usage.ru_majflt or self.rows == 1
            if looks and not self._snapshot.has_all(self.pid):
                return False
            self._snapshot.put_back(self.pid)
            kernel.make_call(self.pid, self._registers, kernel.CLONE)
            kernel.go_on(self.pid)
        except (OSError, Refused, Unfit):
            return False
        return True

    def _command_is_taken(self) -> bool:
        """Whether the row's process has lived to hear what to do. Else the next one would."""
        return fcntl.ioctl(self.control, termios.TIOCOUTQ, bytes(4)) == bytes(4)

    def _open_up(self) -> None:
        """Has it let its memory be looked into again, which rows do not, by a call that it makes where it is."""
        self._go_to_call()  # where the one that started the row ends
        kernel.make_call(self.pid, self._registers, kernel.PRCTL, kernel.PR_SET_DUMPABLE, 1, 0, 0, 0)
        self._go_to_call()
        self._go_to_call()
        if kernel.call_result(self.pid) != 0:
            raise Refused

    def _go_to_call(self) -> None:
        kernel.go_to_call(self.pid)
        self._await_stop(self.pid, kernel.CALL_STOP)


def _looks(notices):
    """Waits between two looks at something: hardly at first, because it is seldom far."""
    waiting = select.poll()
    for _ in range(_QUICK_LOOKS):
        os.sched_yield()
        yield notices.poll(waiting, 0)
    while True:
        yield notices.poll(waiting, time.monotonic() + _LOOK_SECONDS)


class Keeping:
    """Has a keeper as long as that pays."""

    def __init__(self, processes, notices, control: socket.socket) -> None:
        self._processes = processes
        self._notices = notices
        self._control = control
        self._snapshot = Snapshot()
        self._keeper = None
        self._short_lives = 0
        self._forks = 0

    def keeper(self):
        """The keeper for the next row; none where it had better be a fork."""
        if self._keeper is not None and (self._keeper.has_ended() or not self._processes.keeper):
            self.end()
        self._processes.forget()
        if self._keeper is None and self._pays():
            try:
                self._keeper = Keeper(self._processes, self._notices, self._control, self._snapshot)
            except (OSError, Refused, Unfit, ValueError):
                self._short_lives += _PATIENCE
                self._give_up_for_now()
                if self._processes.zygote_is_disturbed():
                    self._processes.end_all()
        return self._keeper

    def _pays(self) -> bool:
        if not self._notices.listens or self._processes.threads(self._processes.zygote) != 1:
            return False
        self._forks -= self._forks > 0
        return not self._forks

    def _give_up_for_now(self) -> None:
        """The next rows are forks, and the more of them the more often this happens."""
        if self._short_lives >= _PATIENCE:
            self._forks = _FORKS << min(self._short_lives - _PATIENCE, _MOST_DOUBLINGS)

    def end_row(self) -> None:
        """Puts back what the row has changed, or does without this keeper."""
        if self._keeper is not None and not self._keeper.put_back():
            rows = self._keeper.rows
            self.end()
            if rows < _SHORT_ROWS:
                self._short_lives += 1
                self._give_up_for_now()
            elif rows >= _LONG_ROWS:
                self._short_lives = 0

    def start_over(self) -> None:
        """Forgets what is known of rows: the module has changed."""
        self.end()
        self._snapshot = Snapshot()
        self._short_lives = self._forks = 0

    def end(self) -> None:
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.close()
