"""PID 1 of the container. It never loads user code, cannot be looked into, and alone speaks with the host.

Under it is the zygote, which holds the loaded module, and under that the process that runs rows. Told to renew all
that, it ends every other process and executes itself anew: no zygote comes of a supervisor that has seen a row.
"""

import ctypes
import errno
import os
import select
import signal
import socket
import sys
import time

import notices
import wire
import zygote
from calls import Call
from forks import Forks
from keeper import Keeping
from processes import Processes
from scratch import Scratch

_HOST_IN, _HOST_OUT = 200, 201
"""Where the connection to the host is moved to. No other process has these open."""
_PR_SET_DUMPABLE = 4
_EXIT_SECONDS = 1.0
"""How long a process may take to be gone that has nothing left to do."""
_LIMITS = {
    wire.LOAD: "load_seconds",
    wire.FIT: "fit_seconds",
    wire.ROWS: "wall_seconds",
    wire.BATCH: "wall_seconds",
    wire.AGGREGATE: "aggregate_seconds",
    wire.DESCRIBE: "load_seconds",
}
_LOOK_SECONDS = 0.2
"""How often to look whether a process is there at all."""
_BATCH_ROWS = 64
_MUCH_BYTES = 32 * 1024
_SOON_SECONDS = 0.01
_NAP_SECONDS = 0.01
"""How long to look away at most while rows run: half as long as those took that are done, or the rest should take."""
_NO_ROOM = b"the module has left no room in /tmp"
_IN_ZYGOTE = (wire.LOAD, wire.FIT)
_ANEW = [sys.executable, *sys.orig_argv[1:]]


class Lost(Exception):
    """There is nothing to run anything in, for a reason if one is known."""


class Supervisor:
    """Carries out the host's commands, one after the other."""

    def __init__(self, settings: dict, control: socket.socket, zygote_pid: int) -> None:
        self._limits = settings["limits"]
        self._fresh_rows = settings["fresh_rows"]
        self._processes = Processes(zygote_pid)
        self._notices = notices.receive(control) if settings["keeps"] else notices.Notices(-1)
        self._forks = Forks(control, self._processes, self._notices)
        self._keeping = Keeping(self._processes, self._notices, control)
        self._scratch = Scratch()
        self._shared = None  # the call that all rows go to where they share state
        self._batch_rows = _BATCH_ROWS
        self._unsaid = bytearray()
        self._said = time.monotonic()

    def serve(self) -> None:
        """Until the host is gone."""
        while body := wire.read_frame(_HOST_IN):
            try:
                self._obey(bytes(body[:1]), memoryview(body)[1:])
            except (Lost, OSError) as lost:  # the latter by what somebody did to the processes here
                self._processes.end_all()
                self._say(wire.record(wire.LOST, lost.args[0] if isinstance(lost, Lost) and lost.args else b""))
            self._flush()

    def _obey(self, command: bytes, argument: memoryview) -> None:
        if command == wire.RENEW:
            self._renew()
        elif command not in (wire.ROWS, wire.BATCH):
            self._say(self._do(command, argument))
        elif self._fresh_rows:
            for row in bytes(argument).split(b"\n"):
                self._say(self._do(wire.ROWS, row))
        else:
            self._run_shared(command, bytes(argument).split(b"\n"))

    def _renew(self) -> None:
        """Ends everything else, and starts from the beginning with nothing in memory of what was before."""
        self._processes.end_all()
        if not Scratch().empty():
            os._exit(3)
        os.dup2(_HOST_IN, 0)
        os.dup2(_HOST_OUT, 1)
        os.execv(_ANEW[0], _ANEW)

    def _say(self, records: bytes) -> None:
        """Tells the host, by and by: each message costs the engine more than us."""
        self._unsaid += records
        if len(self._unsaid) > _MUCH_BYTES or time.monotonic() - self._said > _SOON_SECONDS:
            self._flush()

    def _flush(self) -> None:
        try:
            wire.write(_HOST_OUT, self._unsaid)
        except OSError:
            os._exit(0)  # nobody is there to hear it
        self._unsaid.clear()
        self._said = time.monotonic()

    # -- one call, one process -------------------------------------------------------------------------------------
    def _do(self, command: bytes, argument: bytes) -> bytes:
        """The record of one call. Nothing of it is left afterwards but what it was to leave in the zygote."""
        self._end_shared()
        maker = self._maker(command)
        with self._call(command, maker) as call:
            call.ask(argument)
            call.finish()
            found = self._await(call, command, 1, maker)
            if command in _IN_ZYGOTE:
                return self._settled(found) if isinstance(found, list) else self._failed(call, command, found)
            answer = self._ended(call, command, found, maker)
        self._clean_up()
        return answer

    def _maker(self, command: bytes):
        """What makes the process for a call: a keeper if there is one, else the zygote, which forks."""
        if command != wire.ROWS:
            self._keeping.start_over()
            return self._forks
        return (self._processes.zygote_lives() and self._keeping.keeper()) or self._forks

    def _settled(self, found: list) -> bytes:
        """Makes what a call in the zygote has left in /tmp a part of what every row starts from; not its processes."""
        if self._fresh_rows:
            self._processes.end_others()
        self._processes.expect_signals()
        self._scratch.remember()
        return found[0]

    def _ended(self, call: Call, command: bytes, found, maker) -> bytes:
        """The record of a call after its process has come to its end, by itself or not."""
        if not isinstance(found, list):
            return self._failed(call, command, found, self._end(maker, gone=not found))
        until = call.began + self._limits[_LIMITS[command]] + _EXIT_SECONDS
        if not maker.gone(until) and not self._processes.zygote_is_stopped():
            # With us, whoever has reported is gone at once.
            return self._failed(call, command, wire.EXCEEDED, self._end(maker, gone=False))
        maker.status()
        call.exchange()
        if call.said_more:
            return wire.record(wire.FORGED, b"", time.monotonic() - call.began, 0.0, 0, *call.printed())
        return found[0]

    def _clean_up(self) -> None:
        """Sees to it that the next row finds what this one has found, or nothing at all."""
        self._processes.end_others()
        if self._processes.zygote_lives() and (self._processes.zygote_is_disturbed() or not self._scratch.restore()):
            self._processes.end_all()
        self._keeping.end_row()

    # -- one process for all rows ----------------------------------------------------------------------------------
    def _run_shared(self, command: bytes, rows: list) -> None:
        """Runs rows that share their state. What fails ends the process, and the next rows get a new one.

        Of a batch that fails without a word, nobody knows which row it was: they are run again one by one.
        """
        together = self._batch_rows if command == wire.BATCH else len(rows)
        while rows:
            if self._shared is None:
                self._shared = self._call(command, self._forks)
            some, rows = rows[:together], rows[together:]
            self._shared.ask(b"\n".join(some))
            done, failure = self._collect(command, len(some))
            some = some[done:]
            if failure is not None and command == wire.BATCH and not done and len(some) > 1:
                self._batch_rows, together = max(1, len(some) // 4), 1  # slow ones may do in smaller batches
            elif failure is not None:
                self._say(failure)
                del some[:1]
            rows = some + rows

    def _collect(self, command: bytes, count: int) -> tuple:
        """Passes on the records of so many rows. Gives how many there were, and the failure that ended them, if any."""
        call, done, began = self._shared, 0, time.monotonic()
        self._processes.ran_out_of_memory()  # rows before these may have lost a process, and lived on
        while done < count:
            call.began = time.monotonic()
            found = self._await(call, command, count - done, self._forks)
            if not isinstance(found, list):
                self._shared = None
                with call:
                    failure = self._failed(call, command, found, self._end(self._forks, gone=not found))
                self._processes.end_others()
                return done, failure
            self._say(b"".join(found))
            done += len(found)
            if done < count:  # to be woken for every row would take time from the rows
                so_far = time.monotonic() - began
                time.sleep(min(_NAP_SECONDS, so_far / 2, so_far / 2 * (count - done) / done))
        return done, None

    def _end_shared(self) -> None:
        if self._shared is not None:
            with self._shared as call:
                self._shared = None
                call.finish()
                self._end(self._forks, gone=True)
            self._clean_up()

    # -- waiting ---------------------------------------------------------------------------------------------------
    def _call(self, command: bytes, maker) -> Call:
        if not self._processes.zygote_lives():
            raise Lost
        self._processes.ran_out_of_memory()  # what happened until now is not this call's
        try:
            return Call(command, maker.control, self._limits)
        except OSError as error:  # it has closed its end of the connection, is just dying, or has used something up
            raise Lost(_NO_ROOM if error.errno == errno.ENOSPC else b"") from None

    def _await(self, call: Call, command: bytes, most: int, maker):
        """The next records, at most so many. Else what went wrong: a kind, or 0 when the process is gone."""
        until = call.began + self._limits[_LIMITS[command]]
        waiting = select.poll()
        waiting.register(_HOST_IN, 0)  # only to hear that the host is gone
        in_time = True
        while True:
            waiting.register(call, call.events)
            ended = maker.has_ended()
            heard = self._wait(waiting, min(until, time.monotonic() + _LOOK_SECONDS))
            lives = call.exchange()
            found = call.records(most)
            if found is None:
                return wire.FORGED
            if found:
                return found
            if not lives or (ended and not heard):
                return 0
            if not in_time:
                return wire.EXCEEDED
            in_time = time.monotonic() < until  # and once more after that: it may have been this process that was late

    def _wait(self, waiting, until: float) -> bool:
        """Waits until something happens, or so long; what is still unsaid is said if nothing happens soon."""
        found = []
        if self._unsaid:
            found = self._notices.poll(waiting, min(until, time.monotonic() + _SOON_SECONDS))
        if not found:
            self._flush()
            found = self._notices.poll(waiting, until)
        if any(descriptor == _HOST_IN for descriptor, _ in found):
            os._exit(0)
        return bool(found)

    def _end(self, maker, *, gone: bool):
        """Ends the process of a call, unless it seems to be gone and is. Gives how it ended, as far as that is known."""
        if not (gone and maker.gone(time.monotonic() + _EXIT_SECONDS)):
            self._processes.end_others()
        return maker.status()

    def _failed(self, call: Call, command: bytes, kind: int, status=None) -> bytes:
        """The record of a call that brought none."""
        wall, (ended, cpu, memory) = time.monotonic() - call.began, status or (None, 0.0, 0)
        why = _LIMITS[command] if kind == wire.EXCEEDED else ""
        if command in _IN_ZYGOTE:
            self._processes.end_all()
            ended = self._processes.zygote_status
        if self._processes.ran_out_of_memory():
            kind, why = wire.EXCEEDED, "memory_bytes"
        if not kind:
            kind, why = wire.CRASHED, _how(ended)
        return wire.record(kind, why.encode(), wall, cpu, memory, *call.printed())


def _how(status) -> str:
    """What is known of the end of a process."""
    if status is None:
        return "it ended every process in the sandbox"
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit {os.WEXITSTATUS(status)}"


def main(settings: dict) -> None:
    """Moves the connection to the host out of reach, starts the zygote, and serves."""
    for standard, place in ((0, _HOST_IN), (1, _HOST_OUT)):
        os.dup2(standard, place, inheritable=False)
        os.dup2(os.open(os.devnull, os.O_RDWR), standard)
    os.closerange(3, _HOST_IN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which from inside cannot end process 1; Python's own handler would
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _be_killed_first(yes=True)
    child = os.fork()
    if child:
        _be_killed_first(yes=False)
    _be_opaque()
    if not child:
        os.close(_HOST_IN)
        os.close(_HOST_OUT)
        ours.close()
        zygote.begin(theirs, settings)
        os._exit(0)
    theirs.close()
    Supervisor(settings, ours, child).serve()
    os._exit(0)


def _be_killed_first(*, yes: bool) -> None:
    """When memory runs out, it should be user code that goes."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000" if yes else "0")


def _be_opaque() -> None:
    """Keeps other processes, all of the same user, from reading or writing this one's memory and descriptors.

    Those that are forked of it are born that way, and the container's seccomp profile lets nobody undo it.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
