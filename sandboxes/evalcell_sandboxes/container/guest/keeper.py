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
import bisect
import os
import re
import select
import socket
import time

import kernel
import wire
from notices import nobody

_OPTIONS = kernel.MARK_CALLS | kernel.TRACE_VFORK_DONE | kernel.EXIT_KILL
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_PAGES = 8192
"""As many are saved at most, in the supervisor's memory."""
_MOST_MAPPED_PAGES = 1 << 22
_MOST_PLACES = 1024
"""So many the kernel takes in one call."""
_PRESENT, _SWAPPED, _OF_A_FILE, _ITS_OWN = 0x80, 0x40, 0x20, 0x01
"""What the uppermost byte of a page's entry in /proc/PID/pagemap says; the last, that no other process has it too."""
_ENTRY_BYTES = 8
_SECONDS = 1.0
"""How long any step may take that starts a keeper or has it go on."""
_EXIT_SECONDS = 0.05
_QUICK_LOOKS = 100
_LOOK_SECONDS = 0.001
_SHORT_ROWS, _LONG_ROWS = 4, 16
"""A keeper for fewer rows than the first has not paid; after as many as the second, all is well again."""
_PATIENCE = 16
_FORKS, _MOST_DOUBLINGS = 64, 6
""""""


class Refused(Exception):
    """There can be no keeper, or it is none any more."""


class Keeper:
    """One keeper, and the process that waits for the next row."""

    def __init__(self, processes, notices, zygote_control: socket.socket, pages: "Pages") -> None:
        self._processes = processes
        self._notices = notices
        self._pages = pages
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
        self._pages.save(self.pid)
        registers = kernel.registers_before_call(self.pid)
        kernel.set_options(self.pid, _OPTIONS)
        self._notices.unusual = False
        kernel.go_on(self.pid)
        kernel.detach(row)
        return registers

    def _await_stop(self, pid: int, expected: int) -> None:
        until = time.monotonic() + _SECONDS
        looks = _looks(self._notices, select.poll())
        while (stop := self._processes.stopped(pid)) is None and time.monotonic() < until:
            next(looks)
        if stop != expected:
            raise Refused

    # -- what is asked of whatever runs rows -------------------------------------------------------------------------
    def gone(self, call, until: float) -> bool:
        """Whether the row's process is gone by then, and the keeper has stopped."""
        waiting = select.poll()
        waiting.register(call, 0)
        looks = _looks(self._notices, waiting)
        while (stop := self._processes.stopped(self.pid)) is None:
            if time.monotonic() > until:
                return False
            next(looks)
        self._row = kernel.event_process(self.pid) if stop == kernel.VFORK_DONE_STOP else 0
        return True

    def status(self, call):
        """How the row's process ended: its wait status, CPU seconds and peak of memory. Nothing if nobody knows."""
        if not self._row:
            self.gone(call, time.monotonic() + _SECONDS)
        until = time.monotonic() + _EXIT_SECONDS
        looks = _looks(self._notices, select.poll())
        while self._row and not self._processes.ended(self._row):
            if time.monotonic() > until:  # it runs another program, in memory of its own
                self._processes.end_others()
            next(looks)
        if not self._row:
            return None
        status, usage = self._processes.ended(self._row)
        return status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024

    # -- between two rows --------------------------------------------------------------------------------------------
    def put_back(self) -> bool:
        """Makes everything as it was before the row, and has the next one's process start. False if it cannot."""
        self.rows += 1
        try:
            if not self._row or self._notices.unusual or _has_signals(self.pid):
                return False
            _, usage = self._processes.ended(self._row)
            looks = usage.ru_minflt or usage.ru_majflt or self.rows == 1
            if looks and not self._pages.are_all(self.pid):
                return False
            self._processes.forget()
            self._row = 0
            kernel.go_to_end_of_call(self.pid)  # where it returns, with a result that must not be seen
            self._pages.put_back(self.pid)
            self._await_stop(self.pid, kernel.CALL_STOP)
            kernel.set_registers(self.pid, self._registers)
            kernel.go_on(self.pid)
        except (OSError, Refused):
            return False
        return True


def _looks(notices, waiting):
    """Waits between two looks at something: hardly at first, because it is seldom far."""
    for _ in range(_QUICK_LOOKS):
        os.sched_yield()
        yield notices.poll(waiting, 0)
    while True:
        yield notices.poll(waiting, time.monotonic() + _LOOK_SECONDS)


class Pages:
    """The pages that rows are known to write to, and what was in them before a row."""

    def __init__(self) -> None:
        self._known = set()
        self._saved = frozenset()
        self._transfers = []

    def save(self, pid: int) -> None:
        """Saves what is in them. To be read this way also gives the process a copy of each to itself: no more faults."""
        if self._known != self._saved:
            pages = _within(sorted(self._known), _private(pid))
            if len(pages) > _MOST_PAGES:
                raise Refused
            self._transfers = [_Transfer(runs) for runs in _in_lots(pages)]
            self._known, self._saved = set(pages), frozenset(pages)
        for transfer in self._transfers:
            transfer.move(kernel.read_memory, pid)

    def are_all(self, pid: int) -> bool:
        """Whether all pages are saved that were written to. The next time they are."""
        written = set(_written(pid))
        self._known |= written
        return written <= self._saved

    def put_back(self, pid: int) -> None:
        for transfer in self._transfers:
            transfer.move(kernel.write_memory, pid)


class _Transfer:
    """Some pages of another process, and room for them here."""

    def __init__(self, runs: list) -> None:
        self._size = sum(size for _, size in runs)
        self._room = array.array("B", bytes(self._size))
        self._here = array.array("Q", [self._room.buffer_info()[0], self._size])
        self._there = array.array("Q", [number for run in runs for number in run])

    def move(self, move, pid: int) -> None:
        if move(pid, self._here, self._there) != self._size:
            raise Refused


def _in_lots(pages: list):
    """Pages as runs of neighbours, an address and a size, as many together as the kernel takes."""
    runs = []
    for page in pages:
        if runs and sum(runs[-1]) == page:
            runs[-1][1] += _PAGE_BYTES
        else:
            runs.append([page, _PAGE_BYTES])
    for at in range(0, len(runs), _MOST_PLACES):
        yield runs[at : at + _MOST_PLACES]


def _within(pages: list, bounds: list) -> list:
    """The pages that are mapped. A row that needs much of the stack has it grow, which a new keeper's has not."""
    find = bisect.bisect_left
    return [page for start, end in bounds for page in pages[find(pages, start) : find(pages, end)]]


def _private(pid: int):
    """The memory of a process that is not a file's or another's, as bounds; neighbours joined."""
    found = []
    with open(f"/proc/{pid}/maps", "rb") as maps:
        for line in maps:
            place, rights, _, _, _, *name = line.split(maxsplit=5)
            if rights[3:4] == b"p" and rights != b"---p" and not (name and name[0].startswith((b"[v", b"[uprobes"))):
                start, end = (int(bound, 16) for bound in place.split(b"-"))
                if found and found[-1][1] == start:
                    found[-1][1] = end
                else:
                    found.append([start, end])
    return found


def _written(pid: int):
    """The addresses of pages that a process has to itself."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for start, end in _private(pid):
            pages = (end - start) // _PAGE_BYTES
            if pages > _MOST_MAPPED_PAGES:
                raise Refused
            entries = os.pread(pagemap.fileno(), pages * _ENTRY_BYTES, start // _PAGE_BYTES * _ENTRY_BYTES)
            for found in _ENTRY_OF_WRITTEN.finditer(entries[_ENTRY_BYTES - 1 :: _ENTRY_BYTES]):
                yield start + found.start() * _PAGE_BYTES


def _is_written(entry: int) -> bool:
    return bool(entry & _SWAPPED) or entry & (_PRESENT | _OF_A_FILE | _ITS_OWN) == _PRESENT | _ITS_OWN


_ENTRY_OF_WRITTEN = re.compile(b"[%b]" % b"".join(rb"\x%02x" % entry for entry in range(256) if _is_written(entry)))


def _has_signals(pid: int) -> bool:
    """Whether a process has signals waiting for it."""
    with open(f"/proc/{pid}/status", "rb") as status:
        return any(int(line.split()[1], 16) for line in status if line.startswith((b"SigPnd:", b"ShdPnd:")))


class Keeping:
    """Has a keeper as long as that pays."""

    def __init__(self, processes, notices, control: socket.socket) -> None:
        self._processes = processes
        self._notices = notices
        self._control = control
        self._pages = Pages()
        self._keeper = None
        self._short_lives = 0
        self._forks = 0

    def keeper(self):
        """The keeper for the next row; none where it had better be a fork."""
        if self._keeper is None and self._pays():
            try:
                self._keeper = Keeper(self._processes, self._notices, self._control, self._pages)
            except (OSError, Refused, ValueError):
                self._short_lives += _PATIENCE
                self._give_up_for_now()
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

    def end(self) -> None:
        if self._keeper is not None:
            keeper, self._keeper = self._keeper, None
            keeper.close()
