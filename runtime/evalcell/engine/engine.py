"""The engine: hands rows to lanes, keeps them in order, and survives the death of any lane.

Rows are cut into batches. A batch that is out with a lane comes back in pieces, in order; batches leave the engine
in the order in which they were read. How much is out at a time is bounded, so a slow reader of the results slows
the lanes, and a slow row stops the others only when the window behind it is full.

When a lane dies, the rows it has answered stand. The rows it was working on are given out again, one at a time, to
find the one that kills. A row is tried twice more at most: if its lane dies each time, it is `crashed`.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING

from evalcell.datasets import Row
from evalcell.engine import failures
from evalcell.engine.batches import Batch, Finished, Source, Span
from evalcell.engine.pool import GRACE_SECONDS, Pool, PooledLane
from evalcell.engine.protocol import (
    Aggregate,
    Aggregated,
    Describe,
    Described,
    Done,
    Faulted,
    FromLane,
    NotDescribed,
    ResultsToAggregate,
    SyntaxFailed,
    Work,
)
from evalcell.engine.rows import RowWork
from evalcell.plan import Plan
from evalcell.records import Aggregates
from evalcell_sandboxes import Crashed, Description, Exceeded, Limits, SandboxFault, Site, SyntaxProblem

if TYPE_CHECKING:
    from evalcell.fitting import FirstRows

_BATCH_SECONDS = 0.1
_MOST_BATCH_ROWS = 512
_AHEAD = 2
"""Batches that a lane holds: one that it works on and one that waits, so that it never idles."""
_WINDOW = 8
"""Batches for each lane that may be read and not yet given out."""
_MOST_HELD_BYTES = 32 * 1024**2
_MOST_RETRIES = 2
_LANE_START_SECONDS = 0.3
_SPARE_SECONDS = 10.0
"""How long a run must have lasted before it is worth having a lane ready for when one is lost."""
_LISTEN_SECONDS = 0.2
"""How long to wait for lanes before looking up: at the silent ones, and whether the run was cancelled."""
_POLL_SECONDS = 0.05
"""How often a source that had no rows to give is asked again, while lanes are waited for."""


class Engine(AbstractContextManager["Engine"]):
    """Runs one plan. Leaving the context kills every lane. Once `stop` is set, it is cancelled."""

    def __init__(self, lanes: int, stop: Event | None = None) -> None:
        self._pool = Pool(lanes)
        self._work: RowWork | None = None
        self._aggregates: Aggregates | None = None
        self._batches: deque[Batch] = deque()
        self._waiting: deque[Span] = deque()
        self._batch_rows = 1
        self._rows_started = 0.0
        self._source = Source(iter(()))
        self._stop = stop or Event()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()

    def lane_pids(self) -> list[int]:
        """The processes that this engine holds now."""
        return [lane.process.pid for lane in self._pool.lanes]

    # -- before the rows ------------------------------------------------------------------------------------------
    def describe(
        self, source: str, limits: Limits, sandbox: str
    ) -> Callable[[], Description | SyntaxProblem | Exceeded | Crashed]:
        """Has a source parsed in a lane, so that no bytes of it are looked into in this process.

        Gives a function that waits for the answer, so that the caller can do something useful meanwhile. It raises
        `SandboxUnavailable` or `SandboxFault` when the sandbox could not do it.
        """
        question = Describe(source, limits, sandbox)
        self._pool.walls[sandbox] = Site()
        self._pool.start().process.send(question)

        def answer() -> Description | SyntaxProblem | Exceeded | Crashed:
            return _description(self._answer(question, limits.load_seconds + GRACE_SECONDS))

        return answer

    def open(self, plan: Plan, fit_rows: "FirstRows | None" = None, *, strict: bool = False) -> None:
        """Loads the plan's program in the first lane, the one that described it, and fits it where the plan says so.

        With `strict`, it is fitted only if none of the rows to fit on is malformed.

        Raises:
            EvaluatorError: The module's own code failed, or its `fit`.
            DatasetError: A row is malformed.
            SandboxUnavailable, SandboxFault: The sandbox could not do it.
        """
        assert (plan.fit_rows is None) == (fit_rows is None), (
            "rows to fit on go with a plan that fits, and only with it"
        )
        self._work = RowWork(plan)
        self._pool.open(plan, fit_rows, strict=strict)
        if self._pool.starts_together:
            while len(self._pool.working) < self._pool.most:
                self._pool.add()
        self._wait_for_a_ready_lane()

    def _wait_for_a_ready_lane(self) -> PooledLane | None:
        """A lane that is ready; None when it was cancelled meanwhile."""
        while (ready := self._pool.ready()) is None and not self.cancelled:
            if not self._pool.lanes:
                self._pool.add()
            self._receive()
        return ready

    def _answer(self, question: Describe, seconds: float) -> FromLane:
        """The first lane's answer to a question it was asked; a lane that dies over it is replaced and asked again."""
        while True:
            try:
                return self._pool.lanes[0].process.answer(seconds)
            except SandboxFault:
                self._pool.bury(self._pool.lanes[0])
                self._pool.start().process.send(question)

    # -- the rows -------------------------------------------------------------------------------------------------
    def run(self, rows: Iterator[Row | None]) -> Iterator[Finished]:
        """Takes rows to records, in order, in pieces as large as they come. A source without rows for now gives None.

        Raises:
            SandboxUnavailable, SandboxFault: No lane can be kept alive.
            DatasetError: The rows cannot be read on. All that were read have been given out.
        """
        self._source = Source(rows)
        self._rows_started = time.monotonic()
        while (self._batches or not self._source.ended) and not self.cancelled:
            while self._batches and (finished := self._batches[0].take()) is not None:
                yield finished
                if self._batches[0].is_given:
                    self._batches.popleft()
            while self._has_room() and not self.cancelled and (batch := self._source.read(self._batch_rows)):
                self._batches.append(Batch(batch))
                self._waiting.append(Span(self._batches[-1], 0, len(batch)))
                self._hand_out()
                if self._source.slow:
                    break  # what is done meanwhile should not wait for the next row
            self._hand_out()
            if self._batches:
                self._receive()
        if not self.cancelled:
            self._source.raise_error()

    def cancel(self) -> None:
        """Makes `run` end where it stands, within a moment. May be called from any thread."""
        self._stop.set()

    @property
    def cancelled(self) -> bool:
        return self._stop.is_set()

    def _has_room(self) -> bool:
        return (
            not self._is_full()
            and len(self._batches) < self._pool.most * _WINDOW
            and len(self._waiting) < self._pool.most
        )

    def _is_full(self) -> bool:
        return sum(batch.held_bytes for batch in self._batches) >= _MOST_HELD_BYTES

    def _hand_out(self) -> None:
        """Gives waiting spans to lanes that have room, starting lanes while there is more work than lanes."""
        for lane in sorted(self._pool.working, key=lambda lane: len(lane.spans)):
            while lane.ready and self._waiting and len(lane.spans) < _AHEAD and self._may_take(lane):
                span = self._waiting.popleft()
                lane.spans.append(span)
                if len(lane.spans) == 1:
                    lane.sent_at = time.monotonic()
                lane.process.send(Work(span.rows()))  # to a dead lane too: what it said before is still to be heard
        if self._waiting and len(self._pool.working) < self._pool.most and self._worth_another_lane():
            self._pool.add()
        elif self._waiting and time.monotonic() - self._rows_started > _SPARE_SECONDS:
            self._pool.keep_spare()

    def _worth_another_lane(self) -> bool:
        """One lane starts at a time, and a second one only when the run has lasted as long as its start would take."""
        lanes = self._pool.working
        starting = any(not lane.ready for lane in lanes)
        return not starting and (not lanes or time.monotonic() - self._rows_started > _LANE_START_SECONDS)

    def _may_take(self, lane: PooledLane) -> bool:
        """A row that is suspected of killing lanes is given to a lane that holds nothing else."""
        return not lane.spans or not (self._waiting[0].alone or lane.spans[-1].alone)

    def _receive(self) -> None:
        """Waits for lanes to say something, and for those that have been silent too long."""
        self._choose_whom_to_hear()
        seconds = _LISTEN_SECONDS if self._source.ended or not self._has_room() else _POLL_SECONDS
        for lane, message in self._pool.listen(seconds):
            if message is None:
                self._bury(lane, None)
            else:
                self._hear(lane, message)
        for lane in self._pool.silent():
            self._bury(lane, None)

    def _choose_whom_to_hear(self) -> None:
        """With too much held back, only the lane that has the next rows is heard: the others wait in their pipes."""
        head = self._batches[0] if self._batches else None
        holders = [lane for lane in self._pool.lanes if any(span.batch is head for span in lane.spans)]
        for lane in self._pool.lanes:
            wanted = not self._is_full() or not holders or not lane.spans or lane in holders
            self._pool.hear(lane, wanted=wanted)

    def _hear(self, lane: PooledLane, message: FromLane) -> None:
        match message:
            case Done():
                self._fill(lane, message)
            case Aggregated() if lane.aggregating:
                self._aggregates = message.aggregates
            case Faulted():
                if message.unavailable is not None:
                    raise failures.error_of(message)
                self._bury(lane, message.message)
            case _:
                if not self._pool.prepare(lane, message):
                    self._bury(lane, "it gave an answer nobody asked for")

    def _fill(self, lane: PooledLane, done: Done) -> None:
        span = lane.spans[0]
        span.batch.fill(span.start, done)
        span.start += len(done.rows)
        if span.start >= span.stop:
            lane.spans.popleft()
            self._learn_pace(lane, span.size)

    def _learn_pace(self, lane: PooledLane, rows: int) -> None:
        """Batches grow until one takes a tenth of a second: slow rows spread over lanes, fast ones travel together."""
        now = time.monotonic()
        seconds = max(now - lane.sent_at, 1e-4)
        lane.sent_at = now
        fitting = int(rows * _BATCH_SECONDS / seconds)
        self._batch_rows = max(1, min(fitting, self._batch_rows * 4, _MOST_BATCH_ROWS))

    # -- after the rows -------------------------------------------------------------------------------------------
    def aggregate(self, pieces: Callable[[], Iterator[bytes]]) -> Aggregates | None:
        """Calls `aggregate` once, with the results in these pieces of a JSON list; None when it was cancelled.

        A lane that dies over it is replaced, as often as one that dies over a row.

        Raises:
            EvaluatorError, SandboxUnavailable, SandboxFault: There is no lane to call it in.
        """
        deaths = 0
        while (lane := self._wait_for_a_ready_lane()) is not None and not self.cancelled:
            for other in [other for other in self._pool.lanes if other is not lane]:
                self._pool.drop(other)  # the memory that they hold may be what aggregate needs
            lane.aggregating = True
            lane.parts = chain(map(ResultsToAggregate, pieces()), [Aggregate()])
            lane.send_part()
            while lane in self._pool.lanes and self._aggregates is None and not self.cancelled:
                self._receive()
            if self._aggregates is not None:
                return self._aggregates
            deaths += lane not in self._pool.lanes
            if deaths > _MOST_RETRIES:
                return Aggregates(error=failures.death_over("aggregate", deaths, lane.fault))
        return None

    # -- deaths ---------------------------------------------------------------------------------------------------
    def _bury(self, lane: PooledLane, fault: str | None) -> None:
        """Removes a dead lane and gives its rows out again; a row that has used up its tries ends here."""
        lane.fault = fault
        self._pool.bury(lane)
        if not lane.spans:
            return
        first, *rest = lane.spans
        lane.spans.clear()
        again = first.one_by_one() if first.deaths < _MOST_RETRIES else []
        if not again:
            self._give_up(first, fault)
        self._waiting.extendleft(reversed([*again, *rest]))

    def _give_up(self, span: Span, fault: str | None) -> None:
        assert self._work is not None
        row = span.rows()[0]
        error = failures.death_over("this row", span.deaths + 1, fault)
        span.batch.fill(span.start, self._work.give_up(row, error))


def _description(answer: FromLane) -> Description | SyntaxProblem | Exceeded | Crashed:
    match answer:
        case Described(description):
            return description
        case SyntaxFailed(problem):
            return problem
        case NotDescribed(outcome):
            return outcome
    raise failures.error_of(answer)
