"""Runs a program in a container, and decodes what comes back as hostile bytes."""

import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from evalcell_sandboxes.container.box import SCRATCH_BYTES, Box, OutOfMemory, Record
from evalcell_sandboxes.container.guest import wire
from evalcell_sandboxes.outcome import Crashed, Exceeded, Invalid, Outcome, Returned, Usage
from evalcell_sandboxes.program import Confinement, Isolation, Limits, Program
from evalcell_sandboxes.renewing import RenewingSession
from evalcell_sandboxes.reports import Reports, most_report_bytes
from evalcell_sandboxes.sandbox import Raw
from evalcell_sandboxes.travelling import as_many_as_travel, lines

_ROWS_A_FRAME = 256
_MOST_LOST = 2
"""How often a call may find nothing to run in: once for what the row before it did, and once more to be sure."""
_NOTE_BYTES = 200
_DAY_SECONDS = 86_400.0
_MOST_BYTES = 1 << 48
_DIED = "the process that holds the module died"
_CONSTANT = {
    "HOME": "/tmp",  # noqa: S108 - the container's own, as below
    "TMPDIR": "/tmp",  # noqa: S108
    "LANG": "C.UTF-8",
    "USER": "evaluator",  # which is in no list of users
    "LOGNAME": "evaluator",
    # One thread each: lanes are what uses the cores, and threads do not survive the fork that makes a row's state.
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
}


def settings_of(filename: str, confinement: Confinement, path: Sequence[str], directory: str = "") -> dict[str, Any]:
    """What the supervisor is told first: how to hold what it will be given. With assets it lies in a directory."""
    limits = confinement.limits
    record = wire.RECORD.size + most_report_bytes(limits) + limits.stdout_bytes + limits.stderr_bytes + _NOTE_BYTES
    bounds = {name: getattr(limits, name) for name in limits.__struct_fields__}
    return {
        "filename": filename,
        "directory": directory,
        "fresh_rows": confinement.isolation is Isolation.ROW,
        "seed": confinement.seed,
        "environment": {**_CONSTANT, **confinement.environment},
        "path": list(path),
        "limits": {**bounds, "record_bytes": record, "file_bytes": SCRATCH_BYTES},
    }


class ContainerSession(RenewingSession):
    """A program in a container.

    Under `row` isolation every row runs in a process of its own, which starts in the state of the one that has loaded
    the module; under `evaluator` isolation one such process runs them all. If the process that holds the module is
    lost, all but the container itself is made anew.
    """

    def __init__(self, make_box: Callable[[], Box], program: Program, confinement: Confinement) -> None:
        super().__init__()
        self._make_box = make_box
        self._box = make_box()
        self._source = program.source.encode()
        self._limits = confinement.limits
        self._fresh_rows = confinement.isolation is Isolation.ROW
        self._reports = Reports(confinement.limits)
        self._alive = True
        self._unspoilt = True
        self._owed = 0
        self._command = wire.ROWS

    def load(self) -> None:
        """Executes the module; `loaded` says what came of it."""
        self._loaded = self._checked(self._execute())

    def close(self) -> None:
        """Ends the container."""
        self._box.close()

    def check(self) -> None:
        self._box.check()

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        self._fitted_on = lines(rows)
        self._settle()
        if self._alive and self._unspoilt:
            fitted = self._fit()
            if self._alive:
                return self._checked(fitted)
        return self._renew()

    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        done = lost = 0
        while done < len(rows):
            ready = self._ready() if lost < _MOST_LOST else Crashed(message=_DIED)
            if not isinstance(ready, Returned):
                done, lost = done + 1, 0
                yield [ready]
                continue
            lost += 1  # until an outcome comes: a module may die of itself whenever it was loaded
            for outcomes in self._run(as_many_as_travel(rows, done, _ROWS_A_FRAME)):
                done, lost = done + len(outcomes), 0
                yield outcomes

    def aggregate(self, results: Raw) -> Outcome:
        outcome: Outcome = Crashed(message=_DIED)
        for _ in range(_MOST_LOST):
            ready = self._ready()
            if not isinstance(ready, Returned):
                return ready
            outcome = self._call(wire.AGGREGATE, results, "aggregate_seconds", self._limits.result_bytes)
            if self._alive:
                break
        return outcome

    def _run(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        """Runs some rows: all of them, or those before there was nothing left to run them in."""
        self._unspoilt = self._unspoilt and self._fresh_rows
        self._box.send(self._command, lines(rows))
        self._owed = len(rows)
        while self._owed:
            if outcomes := self._take(self._limits.result_bytes):
                yield outcomes

    def _take(self, most: int | None) -> list[Outcome]:
        """The outcomes of the records that come next."""
        try:
            records = self._box.receive(self._limits.wall_seconds * (2 if self._command == wire.BATCH else 1))
        except OutOfMemory:
            return [self._replace_box()]
        self._owed -= len(records)
        if records[-1].kind == wire.LOST:
            lost = records.pop()
            self._alive, self._owed = False, 0
            if lost.report:  # then trying again is no use
                return [*(self._outcome(record, most) for record in records), Crashed(message=_text(lost.report))]
        return [self._outcome(record, most) for record in records]

    def _replace_box(self) -> Exceeded:
        """Makes another container in place of one that has died of what the program did; that is the row's failure."""
        self._box.close()
        self._box = self._make_box()
        self._alive, self._owed = False, 0
        return Exceeded(limit="memory_bytes", message=_exceeded("memory_bytes", self._limits))

    def _settle(self) -> None:
        """Hears out what nobody has asked for any more: whoever took outcomes of rows may have left before the last."""
        while self._owed:
            self._take(None)

    def _is_there(self) -> bool:
        self._settle()
        return self._alive

    def _load(self) -> Outcome:
        self._box.renew()
        self._alive = self._unspoilt = True
        return self._execute()

    def _execute(self) -> Outcome:
        loaded = self._call(wire.LOAD, self._source or b"\n", "load_seconds", None)
        batches = not self._fresh_rows and isinstance(loaded, Returned) and loaded.value == b"true"
        self._command = wire.BATCH if batches else wire.ROWS
        return loaded

    def _fit(self) -> Outcome:
        return self._call(wire.FIT, self._fitted_on or b"\n", "fit_seconds", None)

    def _abandon(self) -> None:
        self._alive = False

    def _call(self, command: bytes, body: bytes, limit: str, most: int | None) -> Outcome:
        self._box.send(command, body)
        try:
            (record,) = self._box.receive(getattr(self._limits, limit))
        except OutOfMemory:
            return self._replace_box()
        if record.kind == wire.LOST:
            self._alive = False
            return Crashed(message=_text(record.report) or _DIED)
        return self._outcome(record, most)

    def _outcome(self, record: Record, most: int | None) -> Outcome:
        if record.kind == wire.REPORTED:
            report = self._reports.decode(record.report)
            if record.stdout or record.stderr:
                report.stdout, report.stderr = _text(record.stdout), _text(record.stderr)
            return self._reports.outcome(report, _usage(record), most)
        return failure_of(record, self._limits)


def failure_of(record: Record, limits: Limits) -> Exceeded | Crashed | Invalid:
    """What the supervisor's own word about a call means."""
    usage, stdout, stderr = _usage(record), _text(record.stdout), _text(record.stderr)
    why = record.report.decode(errors="replace")
    if record.kind == wire.EXCEEDED:
        return Exceeded(limit=why, message=_exceeded(why, limits), stdout=stdout, stderr=stderr, usage=usage)
    if record.kind == wire.CRASHED:
        return Crashed(message=_how_it_died(why), stdout=stdout, stderr=stderr, usage=usage)
    message = "the code made up reports of its own"
    return Invalid(message=message, stdout=stdout, stderr=stderr, usage=usage)


def _exceeded(limit: str, limits: Limits) -> str:
    most = getattr(limits, limit)
    return f"the call ran into its limit of {f'{most:g} s' if limit.endswith('_seconds') else f'{most:,} bytes'}"


def _how_it_died(why: str) -> str:
    what, _, number = why.partition(" ")
    if what == "exit":
        return f"the code ended its own process, with exit code {number}"
    if what == "signal":
        name = next((known.name for known in signal.Signals if str(known.value) == number), "unknown")
        return f"the process died of signal {number} ({name})"
    return why


def _usage(record: Record) -> Usage:
    """All of it is the guest's word and no more than a hint, but a number that can be added up."""
    return Usage(
        _seconds(record.wall_seconds), _seconds(record.cpu_seconds), min(record.memory_bytes, _MOST_BYTES) or None
    )


def _seconds(said: float) -> float:
    """Between nothing and a day. The order of arguments decides what becomes of NaN."""
    return min(_DAY_SECONDS, max(0.0, said))


def _text(printed: bytes) -> str:
    return printed.decode("utf-8", "backslashreplace")
