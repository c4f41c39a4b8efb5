"""The process that holds user code: it executes the module once, and every row starts from the state it is then in.

It is forked from the supervisor before that has seen any row, and is told what to do over a socket on which it also
gets the descriptors to do it with: one to read the arguments from and write records to, and two for prints. Rows never
pass through here, so what the module left running has none to look at.

A row gets that state by a fork (`start`), or from a keeper, itself a fork, whose memory is put back (`keep`).
"""

import array
import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import stat
import struct
import sys
import time
import typing

import describing
import filters
import kernel
import notices
import room
import wire
from evaluating import Evaluator

STATUS = struct.Struct("!idQ")
"""How a process ended that ran rows: its wait status, CPU seconds, and peak of memory in bytes."""

_DESCRIPTORS = 3
_MOST_DESCRIPTORS = 1024
"""What `getrlimit` says a module may have lowered, with higher ones open."""
_IN_PLACE = (wire.LOAD, wire.FIT)


class Beginning(typing.NamedTuple):
    """What rows start with: the module, files to be opened anew, and the signals that the module does not let in."""

    evaluator: Evaluator
    files: list
    mask: set


def begin(control: socket.socket, settings: dict) -> None:
    """Makes this process what user code may see, and serves until the supervisor is gone."""
    if settings["user"] is not None:
        _become(settings["user"])
        filters.lack_clone3()
    _hold_tight(settings["limits"], room.BYTES if settings["keeps"] else 0)
    if settings["keeps"]:
        room.hold_on()
        room.leave()  # until the supervisor listens, nobody would answer a call for more
        notices.send(control, filters.install())
    os.environ.clear()
    os.environ.update(settings["environment"])
    sys.path += settings["path"]
    sys.argv[:] = [settings["filename"]]
    if settings["directory"]:
        os.chdir(settings["directory"])
    room.roomy(serve)(control, Evaluator(settings), reachable=settings["user"] is not None)


def _become(user: int) -> None:
    """Has a user of its own, where the kernel would let one of the same reach what the supervisor has open."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def serve(control: socket.socket, evaluator: Evaluator, *, reachable: bool) -> None:
    """Does what the supervisor says, until it is gone. Where rows can reach this process, they find nothing in it to
    leave things in for later ones.
    """
    beginning = Beginning(evaluator, [], _let_no_signals_in())
    while True:
        command, descriptors = _receive(control)
        if not command:
            return
        if command == wire.KEEP:
            keep(beginning, descriptors[0])
        elif command in _IN_PLACE:
            signal.pthread_sigmask(signal.SIG_SETMASK, beginning.mask)
            _adopt(descriptors)
            _answer(evaluator, command, descriptors[0])
            os.close(descriptors[0])
            if reachable:
                _adopt([0, os.open(os.devnull, os.O_WRONLY), os.open(os.devnull, os.O_WRONLY)])
            _stop_timers()
            beginning = Beginning(evaluator, _readable_files(), _let_no_signals_in())
        else:
            status = start(beginning, command, descriptors, control)
            if reachable:
                _forget_signals()
            control.send(status)


def start(beginning: Beginning, command: bytes, descriptors: list, control: socket.socket) -> bytes:
    """Runs what the command asks for in a process that starts in the state this one is in; gives how it ended."""
    child = os.fork()
    if not child:
        control.close()
        _run(beginning, command, descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        _, status, usage = os.wait4(child, 0)
        signal.sigtimedwait([signal.SIGCHLD], 0)  # which has come with it
    except ChildProcessError:  # it has ended, but the module takes no notice of children, or has waited for all
        return STATUS.pack(0, 0.0, 0)
    return STATUS.pack(status, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def keep(beginning: Beginning, descriptor: int) -> None:
    """Starts the keeper, a process that starts one for each row in its own memory; see `keeper`."""
    ctypes.pythonapi.PyOS_BeforeFork()
    if not _cloned(kernel.CLONE_PARENT):
        control = _become_a_row(descriptor, beginning.files)
        ctypes.pythonapi.PyOS_AfterFork_Child()
        with control:
            command, descriptors = _receive(control)
        _run(beginning, command, descriptors)
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    os.close(descriptor)


def _become_a_row(descriptor: int, files: list) -> socket.socket:
    """Is the keeper, and returns in the processes that it starts: one by itself, the others as the supervisor has it do.

    Nobody can look into them, as into no other process with user code; the supervisor can, into the keeper between rows.
    Large pages would join memory that was written to with memory that was not.
    """
    try:
        control = socket.socket(fileno=os.dup2(descriptor, _MOST_DESCRIPTORS - 1))  # not in the way of rows' own
        _keep_only({control.fileno(), *files})
        kernel.prctl(kernel.PR_SET_THP_DISABLE, 1)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        control.send(b"%d" % os.getpid())
        if control.recv(1) and not kernel.clone(kernel.CLONE_PARENT | kernel.CLONE_VM | kernel.CLONE_VFORK):
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
            return control
    except OSError:
        pass
    os._exit(1)


def _cloned(flags: int) -> int:
    try:
        return kernel.clone(flags)
    except OSError:
        return -1


def _run(beginning: Beginning, command: bytes, descriptors: list) -> None:
    """Does what the command asks for, as a process that is there for nothing else."""
    with contextlib.suppress(BaseException):
        os.setsid()  # a session has settings of its own
        _adopt(descriptors)
        _open_anew(beginning.files)
        _keep_only({descriptors[0], *beginning.files})
        signal.pthread_sigmask(signal.SIG_SETMASK, beginning.mask)
        _answer(beginning.evaluator, command, descriptors[0])
    os._exit(0)


def _receive(control: socket.socket) -> tuple:
    space = socket.CMSG_SPACE(_DESCRIPTORS * array.array("i").itemsize)
    command, ancillary, _, _ = control.recvmsg(1, space)
    descriptors = array.array("i")
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return command, list(descriptors)


def _adopt(descriptors: list) -> None:
    """Makes the last two stdout and stderr."""
    for standard, descriptor in ((1, descriptors[1]), (2, descriptors[2])):
        os.dup2(descriptor, standard)
        os.close(descriptor)


def _readable_files() -> list:
    """The files that the module has open and can only read."""
    found = []
    for descriptor in sorted(set(map(int, os.listdir("/proc/self/fd"))) - {1, 2}):
        with contextlib.suppress(OSError):
            only_read = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            if only_read and stat.S_ISREG(os.fstat(descriptor).st_mode):
                found.append(descriptor)
    return found


def _let_no_signals_in() -> set:
    """Nothing that a row sends may change what later rows start from. Gives those that were not let in before."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def _forget_signals() -> None:
    """Takes what a row has left waiting here: gVisor, where it can, does not tell the supervisor of it."""
    while signal.sigtimedwait(signal.valid_signals(), 0):
        pass


def _stop_timers() -> None:
    """No row would have them, and here they would do no good."""
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)


def _open_anew(files: list) -> None:
    """Opens files once more in place of themselves: processes that share one share how far it was read, locks, flags.

    What stands for standard input is one of them, or nothing that could be read.
    """
    if 0 not in files:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    for descriptor in files:
        try:
            anew = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
            os.lseek(anew, os.lseek(descriptor, 0, os.SEEK_CUR), os.SEEK_SET)
        except OSError:  # it may no longer be opened, or was only ever pointed at
            os.close(descriptor)
            continue
        os.dup2(anew, descriptor, inheritable=False)
        os.close(anew)


def _keep_only(kept: set) -> None:
    """Closes what else the module has opened: two rows that held the same pipe could talk to each other."""
    ends = sorted(kept - {0})
    for before, after in zip([2, *ends], [*ends, _MOST_DESCRIPTORS], strict=True):
        os.closerange(before + 1, after)


def _answer(evaluator: Evaluator, command: bytes, descriptor: int) -> None:
    """Reads what there is to do and writes a record of each thing done; for rows, until there are no more."""
    while argument := wire.read_frame(descriptor).decode():
        if command in _ACTIONS:
            _write(evaluator, descriptor, _ACTIONS[command], argument)
            return
        rows = argument.split("\n")
        if command == wire.BATCH and len(rows) > 1 and _write(evaluator, descriptor, _batch, rows):
            continue
        for row in rows:
            _write(evaluator, descriptor, _batch_of_one if command == wire.BATCH else _row, row)


def _batch(evaluator: Evaluator, rows: list) -> list:
    """The reports of all rows; none where the batch failed as a whole, and each has to show whether it is the one."""
    reports = []
    evaluator.report(lambda some: reports.extend(evaluator.evaluate_batch(some)) or "", rows)
    if not reports:
        evaluator.streams.take()
    return reports


def _row(evaluator: Evaluator, row: str) -> list:
    return [evaluator.report(evaluator.evaluate, row)]


def _batch_of_one(evaluator: Evaluator, row: str) -> list:
    return [evaluator.report(lambda some: evaluator.evaluate_batch(some)[0][:-1], [row])]


def _write(evaluator: Evaluator, descriptor: int, action, argument) -> bool:
    """Writes the records of what an action reports: they share what it used, and the first one has the prints."""
    began, before = time.perf_counter(), _usage()
    reports = action(evaluator, argument)
    after, wall = _usage(), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    share, peak = len(reports) or 1, after.ru_maxrss * 1024
    records, prints = [], evaluator.streams.take()
    for report in reports:
        records.append(wire.record(wire.REPORTED, report.encode(), wall / share, cpu / share, peak, *prints))
        prints = b"", b""
    wire.write(descriptor, b"".join(records))
    return bool(reports)


def _usage():
    return resource.getrusage(resource.RUSAGE_SELF)


_ACTIONS = {
    wire.LOAD: lambda evaluator, source: [evaluator.report(evaluator.load, source)],
    wire.FIT: lambda evaluator, rows: [evaluator.report(evaluator.fit, rows)],
    wire.AGGREGATE: lambda evaluator, results: [evaluator.report(evaluator.aggregate, results)],
    wire.DESCRIBE: lambda _, source: [describing.describe(source)],
}


def _hold_tight(limits: dict, spare_bytes: int) -> None:
    """What the operating system holds this process and all that come of it to, before any user code has run."""
    os.nice(5)  # the supervisor comes first
    for what, most in (
        (resource.RLIMIT_NOFILE, _MOST_DESCRIPTORS),
        (resource.RLIMIT_DATA, limits["memory_bytes"] + spare_bytes),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))
