"""Runs a program in processes of the guest, under deadlines, and decodes what comes back as hostile bytes."""

import json
import time
from collections.abc import Iterator, Sequence

from evalcell_sandboxes import assets
from evalcell_sandboxes.deno import ahead
from evalcell_sandboxes.deno.failure import Deadline, Died, Flooded, ended
from evalcell_sandboxes.deno.process import AGGREGATE, ASSET, DESCRIBE, FIT, LOAD, ROWS, SETTINGS, Guest
from evalcell_sandboxes.errors import SandboxFault
from evalcell_sandboxes.outcome import Crashed, Exceeded, Outcome, Returned, Usage
from evalcell_sandboxes.program import Confinement, Isolation, Limits, Program
from evalcell_sandboxes.renewing import RenewingSession
from evalcell_sandboxes.reports import Report, Reports, most_report_bytes
from evalcell_sandboxes.sandbox import Raw
from evalcell_sandboxes.travelling import as_many_as_travel, lines

_FRESH_ROWS_A_FRAME = 64
_ROWS_A_FRAME = 512
_TAKE_SECONDS = 60.0
"""How long the guest may take to read a frame while it is at rest."""
_NAP_SECONDS = 0.005


class DenoSession(RenewingSession):
    """A program in the guest.

    Under `row` isolation every row gets a context of its own, in which the module is executed anew, and fitted where it
    was; under `evaluator` isolation one context serves them all. A process that dies, or does not come back in time, is
    replaced: that costs the row that was in flight. But no fresh row fails for what rows before it have left in the
    process: one that finds no memory there, or dies, is run again as the first of a new one, and that is believed.
    """

    def __init__(self, program: Program, confinement: Confinement) -> None:
        super().__init__()
        self._program = program
        self._limits = confinement.limits
        self._fresh_rows = confinement.isolation is Isolation.ROW
        self._reports = Reports(confinement.limits)
        self._settings = {
            "filename": program.filename,
            "fresh": self._fresh_rows,
            "seed": str(confinement.seed),
            "environment": json.dumps(confinement.environment),
            **{name: getattr(confinement.limits, name) for name in ("result_bytes", "stdout_bytes", "stderr_bytes")},
        }
        self._guest: Guest | None = None
        self._owed = 0
        self._served = 0
        self._running = False
        self._batches = False
        self._alone = 0
        self._ready_seconds = 0.0
        self._loaded = self._checked(self._load())

    def close(self) -> None:
        """Ends the process."""
        if self._guest is not None:
            self._guest.close()
            self._guest = None
        self._owed = 0

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        self._fitted_on = lines(rows)
        if self._is_there() and self._fresh_rows:  # no row has left anything behind
            return self._checked(self._fit())
        return self._renew()

    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        done = 0
        while done < len(rows):
            ready = self._ready()
            if not isinstance(ready, Returned):
                done += 1
                yield [ready]
                continue
            most = _FRESH_ROWS_A_FRAME if self._fresh_rows else _ROWS_A_FRAME
            for outcomes in self._run(as_many_as_travel(rows, done, 1 if self._alone else most)):
                done += len(outcomes)
                self._alone = max(0, self._alone - len(outcomes))
                yield outcomes

    def aggregate(self, results: Raw) -> Outcome:
        self._settle()
        ready = self._renew() if self._served else self._ready()
        if not isinstance(ready, Returned):
            return ready
        return self._call(AGGREGATE, results, "aggregate_seconds", self._limits.result_bytes)

    # -- rows ---------------------------------------------------------------------------------------------------------
    def _run(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        """Runs some rows: all of them, or up to one that costs the process."""
        assert self._guest is not None
        try:
            self._guest.send(ROWS, lines(rows), self._ready_seconds + _TAKE_SECONDS)
        except (Died, Deadline) as end:
            yield [self._ended(end, "load_seconds", 0.0)]
            return
        self._owed, self._running = len(rows), not self._fresh_rows
        yield from self._answers()
        self._recycle()

    def _answers(self) -> Iterator[list[Outcome]]:
        """The outcomes of the rows that were sent, as they come.

        No row pays for the time in which nobody listened: it may have been done long before.
        """
        began = heard = time.monotonic()
        while self._owed and self._guest is not None:
            limit = "wall_seconds" if self._running else "load_seconds"
            seconds = self._limits.wall_seconds if self._running else self._ready_seconds
            try:
                found = self._guest.lines(began + seconds)
            except (Died, Deadline) as end:
                self._alone = self._owed if self._batches and self._owed > 1 else 0
                outcome = self._ended(end, limit, time.monotonic() - began)
                if not self._alone and self._believed([outcome]):  # else each has to show whether it is the one
                    yield [outcome]
                return
            reports = [line for line in found if line][: self._owed]
            took, heard = time.monotonic() - heard, time.monotonic()
            if not self._running:  # else a line without a report says again what it has said, and gains no time by that
                began = heard
            self._running = not (self._fresh_rows and found[-1])
            if reports:
                outcomes = self._believed(self._outcomes(reports, took))
                self._owed -= len(reports)
                self._served += len(outcomes)
                if len(outcomes) < len(reports):
                    self.close()
                if outcomes:
                    yield outcomes
                began = time.monotonic()
                self._nap(took / len(reports))

    def _believed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Those before the first that others may have caused: that row and all after it are to be run again."""
        if self._fresh_rows:
            for number, outcome in enumerate(outcomes):
                if self._served + number > 0 and _is_for_want_of_room(outcome):
                    return outcomes[:number]
        return outcomes

    def _nap(self, row_seconds: float) -> None:
        """Leaves the processor to the rows for a while: to be woken for each would take time from them."""
        if self._owed > 1:
            time.sleep(min(_NAP_SECONDS, self._owed * row_seconds / 2))

    def _outcomes(self, found: list[bytes], took: float) -> list[Outcome]:
        """What rows that were done together have come to. They share what was used, by the time that each took."""
        assert self._guest is not None
        reports = self._reports.decode_lines(b"\n".join(found) + b"\n", len(found))
        used = self._guest.usage()
        seconds = [_seconds(report, took) for report in reports]
        total = sum(seconds) or 1.0
        most = self._limits.result_bytes
        return [
            self._reports.outcome(report, Usage(wall, used.cpu_seconds * wall / total, used.memory_bytes), most)
            for report, wall in zip(reports, seconds, strict=True)
        ]

    def _settle(self) -> None:
        """Hears out what nobody has asked for any more: whoever took outcomes of rows may have left before the last."""
        for _ in self._answers():
            pass

    def _recycle(self) -> None:
        """Gives up a process that rows have left too much in, before it is a later row that pays for it."""
        if self._fresh_rows and self._guest is not None and self._guest.holds_much():
            self.close()

    # -- the process --------------------------------------------------------------------------------------------------
    def _is_there(self) -> bool:
        """Whether there is a process. Where one has died while it was at rest, that is nobody's failure."""
        self._settle()
        if self._guest is not None and not self._guest.alive:
            self.close()
        return self._guest is not None

    def _abandon(self) -> None:
        self.close()

    def _load(self) -> Outcome:
        self.close()
        self._served = 0
        self._guest = self._start()
        self._ready_seconds = self._limits.load_seconds
        loaded = self._call(LOAD, self._program.source.encode(), "load_seconds", None)
        self._batches = not self._fresh_rows and isinstance(loaded, Returned) and loaded.value == b"true"
        return loaded

    def _start(self) -> Guest:
        """A guest that knows what it will need, and nothing of the program's code yet."""
        memory_bytes, shipped = self._limits.memory_bytes, self._program.assets
        if shipped:
            guest = Guest(memory_bytes, sum(assets.size_of(asset) for asset in shipped))
        else:
            guest = ahead.take(memory_bytes, self._program.source)
        guest.most_line_bytes = most_report_bytes(self._limits)
        try:
            guest.begin()
            guest.send(SETTINGS, json.dumps(self._settings).encode(), _TAKE_SECONDS)
            for asset in shipped:
                guest.send(ASSET, asset.name.encode() + b"\n" + b"".join(assets.pieces(asset)), _TAKE_SECONDS)
        except (Died, Deadline) as error:
            guest.close()
            raise SandboxFault(f"Deno did not take in what an evaluator needs: {error}.") from error
        except BaseException:
            guest.close()
            raise
        return guest

    def _fit(self) -> Outcome:
        self._ready_seconds = self._limits.load_seconds + self._limits.fit_seconds
        return self._call(FIT, self._fitted_on or b"", "fit_seconds", None)

    def _call(self, command: bytes, body: bytes, limit: str, most: int | None) -> Outcome:
        assert self._guest is not None
        began = time.monotonic()
        try:
            self._guest.send(command, body, self._ready_seconds + _TAKE_SECONDS)
            line = self._guest.line(getattr(self._limits, limit))
        except (Died, Deadline) as end:
            return self._ended(end, limit, time.monotonic() - began)
        report, used = self._reports.decode(line), self._guest.usage()
        wall = _seconds(report, time.monotonic() - began)
        return self._reports.outcome(report, Usage(wall, used.cpu_seconds, used.memory_bytes), most)

    def _ended(self, end: Died | Deadline, limit: str, seconds: float) -> Outcome:
        """What the end of the process means for the call that it was at."""
        assert self._guest is not None
        guest, self._guest, self._owed = self._guest, None, 0
        used = guest.usage()
        return ended(guest, end, limit, self._limits, Usage(seconds, used.cpu_seconds, used.memory_bytes))


def _is_for_want_of_room(outcome: Outcome) -> bool:
    """Whether what is left in a process may be the reason: a crash can be for want of memory too."""
    return isinstance(outcome, Crashed) or (isinstance(outcome, Exceeded) and outcome.limit == "memory_bytes")


def _seconds(report: Report, most: float) -> float:
    """What the guest says that a call took: no more than a hint, and no longer than we have waited."""
    return min(most, max(0.0, report.seconds))


def parsed(source: str, limits: Limits) -> bytes | Exceeded | Crashed:
    """What the guest says that a source declares, in a process that has seen no other."""
    guest = ahead.take(limits.memory_bytes, source)
    try:
        guest.begin()
        guest.send(DESCRIBE, source.encode(), limits.load_seconds)
        answer = guest.line(limits.load_seconds)
    except Flooded:
        guest.close()
        return Exceeded(limit="source_bytes", message="the source declares more than can be described")
    except (Died, Deadline) as end:
        return ended(guest, end, "load_seconds", limits, guest.usage())
    except BaseException:
        guest.close()
        raise
    ahead.keep(guest, source)
    return answer
