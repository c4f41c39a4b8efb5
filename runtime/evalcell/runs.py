"""A run under way: both ends of the data, the engine between them, and how far it has come.

A run is driven by whoever takes its results: rows are scored a little ahead of that, and no further. So a slow reader
slows the lanes instead of filling memory, and there is no thread that could outlive its owner.
"""

import os
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from evalcell import datasets, records, sink
from evalcell.binding import missing_in
from evalcell.configuration import Operator
from evalcell.datasets import Dataset, Format, Row
from evalcell.engine.batches import Finished
from evalcell.engine.engine import Engine
from evalcell.errors import EvaluatorError, malformed
from evalcell.evaluator import Evaluator
from evalcell.plan import Plan
from evalcell.records import Aggregates, Error, Kind, Record
from evalcell.running import Ready, cores, loaded, ready
from evalcell.sink import Sink
from evalcell.summary import Summary
from evalcell_sandboxes import Progress, SandboxError, silent

if TYPE_CHECKING:
    from evalcell.aggregating import Results

_SHOWN_FAILURES = 3

State = Literal["running", "finished", "cancelled", "failed"]


@dataclass(frozen=True)
class RunProgress:
    """How far a run has come. `fraction` is None where the size of the dataset is not known."""

    state: State
    rows: int
    failed: int
    fraction: float | None
    seconds: float


@dataclass(frozen=True)
class Order:
    """What to run, on what, and how."""

    evaluator: Evaluator
    data: object
    operator: Operator
    form: Format | None = None
    rows: int | None = None
    out: str | None = None
    strict: bool = False
    id_path: str | None = None


stop: ContextVar[threading.Event | None] = ContextVar("stop", default=None)
"""What cancels the run that is being started here, for whoever cannot wait until there is one to be cancelled."""


class _Stopped(Exception):
    """Tells the ends of a run that it did not come to its own."""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)  # the line that calls `evalcell.run`


def start(
    order: Order,
    *,
    progress: Progress = silent,
    warn: Callable[[str], None] = _warn,
    meanwhile: Callable[[], None] = lambda: None,
) -> "Run":
    """Opens both ends of the data, loads the program, and gives a run whose rows have not begun.

    `progress` is told of slow steps, `warn` of what is probably a mistake; `meanwhile` is called while a lane starts.

    Raises:
        UsageError, EvaluatorError: It cannot be run, or not in this way.
        SandboxUnavailable, SandboxFault: What it needs is not here, or failed.
    """
    started_ns = time.time_ns()
    with ExitStack() as stack:
        # Both ends are looked at first: a typo in a path should not cost a start of the sandbox.
        path = order.data if isinstance(order.data, str) else None
        sink.check(order.out, path)
        dataset = (
            stack.enter_context(datasets.opened(path, order.form))
            if path is not None
            else datasets.in_memory(order.data)
        )
        prepared = stack.enter_context(
            ready(
                order.evaluator,
                order.operator,
                started_ns=started_ns,
                lanes=order.operator.workers or cores(),
                id_path=order.id_path,
                stop=stop.get(),
                progress=progress,
                meanwhile=meanwhile,
            )
        )
        plan = prepared.planned.plan
        rows = _checked_against_first_row(dataset, prepared, warn)
        rows = stack.enter_context(loaded(prepared, rows, strict=order.strict, progress=progress))
        results = stack.enter_context(_results_kept(plan)) if plan.aggregates else None
        out = stack.enter_context(ExitStack())  # of its own: records are whole before they are aggregated
        write = out.enter_context(sink.opened(order.out))
        summary = Summary(plan, prepared.planned.choice, started_ns)
        pieces = prepared.engine.run(_first(rows, order.rows))
        ends = Ends(dataset, write, out, results, progress, stack.pop_all())
        return Run(order, prepared.engine, pieces, summary, ends)
    raise AssertionError("unreachable: nothing above swallows exceptions")


def _checked_against_first_row(dataset: Dataset, prepared: Ready, warn: Callable[[str], None]) -> Iterator[Row | None]:
    """Warns before anything runs when a required parameter finds nothing in the first row; rows go on as they came."""
    first, rows = datasets.with_first(dataset)
    for sentence in missing_in(prepared.planned.plan.bindings, first.text):
        warn(f"In the first row, {sentence} Name another path with --bind.")
    return rows


def _results_kept(plan: Plan) -> "Results":
    from evalcell.aggregating import Results  # most runs aggregate nothing, and start faster without

    return Results(plan.confinement.limits.memory_bytes)


def _first(rows: Iterator[Row | None], count: int | None) -> Iterator[Row | None]:
    """The first rows, and all the waiting between them."""
    for row in rows:
        yield row
        count = count - 1 if count is not None and row is not None else count
        if count == 0:
            return


@dataclass(frozen=True)
class Ends:
    """What a run reads from and writes to. `closing` closes it all and the engine, `out` only the file of records."""

    dataset: Dataset
    write: Sink
    out: ExitStack
    results: "Results | None"
    progress: Progress
    closing: ExitStack


class Run(AbstractContextManager["Run"]):
    """A run that has been started. Rows are scored as their results are taken, in order, each result once.

    A run that comes to its end closes itself. One that is left before that is closed by its context, by `cancel`, or
    when nobody holds it any more; then its worker processes are gone, and `out` keeps what there was as `OUT.partial`.
    """

    def __init__(
        self,
        order: Order,
        engine: Engine,
        pieces: Iterator[Finished],
        summary: Summary,
        ends: Ends,
    ) -> None:
        self._order = order
        self._engine = engine
        self._pieces = pieces
        self._totals = summary
        self._ends = ends
        self._state: State = "running"
        self._lines: deque[bytes] = deque()
        self._stepping = threading.Lock()
        self._abandoned = weakref.finalize(self, _abandon, ends.closing, os.getpid())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.cancel()
        with self._stepping:
            self._close("cancelled", error or _Stopped())

    def results(self) -> Iterator[Record]:
        """The records that have not been taken yet, each as soon as it is known and the rows before it are done.

        Ends early, without an error, when the run is cancelled.

        Raises:
            DatasetError: The rows cannot be read on; or with `strict`, a row is malformed.
            OutputError: The records cannot be written to `out`.
            SandboxError: The sandbox failed, and no worker can be kept alive.
        """
        while self._lines or self._step(keep=True) is not None:
            try:
                line = self._lines.popleft()
            except IndexError:  # cancelled by another thread in between
                return
            yield records.decode(line)

    def next_results(self) -> list[Record]:
        """The next records, as many as are known together; none at the end."""
        if not self._lines and self._step(keep=True) is None:
            return []
        with self._stepping:
            taken, self._lines = self._lines, deque()
        return [records.decode(line) for line in taken]

    def pieces(self) -> Iterator[Finished]:
        """The same as `results`, as the engine gives it: many rows at a time, not decoded."""
        while (piece := self._step()) is not None:
            yield piece

    def wait(self) -> dict[str, Any]:
        """Runs to the end, keeping no record, and gives the summary."""
        for _ in self.pieces():
            pass
        return self.summary()

    def cancel(self) -> None:
        """Stops the run: its worker processes are killed, and `results` ends. May be called from any thread."""
        self._engine.cancel()
        if self._stepping.acquire(blocking=False):  # else whoever takes a step will find out and close
            try:
                self._close("cancelled", _Stopped())
            finally:
                self._stepping.release()

    def progress(self) -> RunProgress:
        """How far the run has come. May be called from any thread."""
        tally = self._totals.tally
        seconds = self._totals.seconds_so_far if self._state == "running" else self._totals.seconds
        return RunProgress(self._state, tally.rows, tally.failed, self._fraction(tally.rows), seconds)

    def summary(self) -> dict[str, Any]:
        """What the run has come to so far, as `evalcell run --json` prints it."""
        return self._totals.to_dict(self._order.out)

    @property
    def totals(self) -> Summary:
        return self._totals

    def to_arrow(self) -> Any:
        """The records that have not been taken yet as a `pyarrow.Table`."""
        from evalcell.tables import to_arrow

        return to_arrow(self.results())

    def to_pandas(self) -> Any:
        """The records that have not been taken yet as a `pandas.DataFrame`."""
        from evalcell.tables import to_pandas

        return to_pandas(self.results())

    def to_polars(self) -> Any:
        """The records that have not been taken yet as a `polars.DataFrame`."""
        from evalcell.tables import to_polars

        return to_polars(self.results())

    def _fraction(self, rows: int) -> float | None:
        if self._state == "finished":
            return 1.0
        read = self._ends.dataset.fraction(rows)
        if self._order.rows is None:
            return read
        return max(read or 0.0, min(1.0, rows / self._order.rows))

    def _step(self, *, keep: bool = False) -> Finished | None:
        """Takes the next piece from the engine and accounts for it; None at the end, and after it.

        With `keep`, its lines are kept for `results`.
        """
        with self._stepping:
            if self._state != "running":
                return None
            self._totals.start()
            try:
                piece = next(self._pieces, None)
                if piece is not None:
                    self._take(piece)
                    if keep:
                        self._lines.extend(line for lines in piece.rows for line in lines.splitlines())
                    return piece
                if not self._engine.cancelled and self._ends.results is not None:
                    self._aggregate(self._ends.results)
            except BaseException as error:
                self._close("failed", error)
                raise
            if self._engine.cancelled:
                self._close("cancelled", _Stopped())
            else:
                self._close("finished", None)
            return None

    def _aggregate(self, results: "Results") -> None:
        """Calls `aggregate` when the rows are done and their records written, so that its failure costs none."""
        self._ends.out.close()
        count = sum(summary.scored for summary in self._totals.tally.names.values())
        if not count:
            return
        self._ends.progress(f"Aggregating {count:,} scores" if count != 1 else "Aggregating 1 score")
        try:
            found = Aggregates(error=results.error) if results.error else self._engine.aggregate(results.pieces)
        except EvaluatorError as error:
            failed = Error(cast("Kind", error.kind), str(error), error.traceback)
            found = Aggregates(error=failed, stdout=error.stdout, stderr=error.stderr)
        except SandboxError as error:
            found = Aggregates(error=Error("infrastructure", str(error)))
        except BaseException as error:
            if self._order.out not in (None, "-"):
                error.add_note(f"All records are in {self._order.out!r}. Only aggregate did not come to its end.")
            raise
        self._totals.aggregates = found or Aggregates()

    def _take(self, piece: Finished) -> None:
        self._ends.write(piece.rows)
        if self._ends.results is not None:
            self._ends.results.add(piece.results)
        self._totals.add(piece.tally, _failures(piece, _SHOWN_FAILURES - len(self._totals.failures)))
        if self._order.strict and piece.malformed:
            raise malformed(piece.malformed[0])

    def _close(self, state: State, error: BaseException | None) -> None:
        if self._state != "running":
            return
        self._abandoned.detach()
        self._state = "failed"  # unless closing works, which for `out` means writing it to disk
        if state != "finished":
            self._lines.clear()
        _end(self._ends.closing, error)
        self._state = state


def _abandon(stack: ExitStack, owner: int) -> None:
    """Ends what nobody holds any more. A forked process has a copy of the run, which is not its own to end."""
    if os.getpid() == owner:
        _end(stack, _Stopped())


def _end(stack: ExitStack, error: BaseException | None) -> None:
    """Closes both ends and the engine; they are told of the error, and it goes no further from here."""
    if error is None:
        stack.close()
    else:
        stack.__exit__(type(error), error, error.__traceback__)


def _failures(piece: Finished, wanted: int) -> list[Record]:
    """The first failed records, to show why."""
    if wanted <= 0 or not piece.tally.failures:
        return []
    decoded = (records.decode(lines.partition(b"\n")[0]) for lines in piece.rows if b'"status":"failed"' in lines)
    return list(islice((record for record in decoded if record.status == "failed"), wanted))
