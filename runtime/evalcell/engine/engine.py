"""The engine: hands rows to lanes, keeps them in order, and survives the death of any lane.

Rows are cut into batches. A batch that is out with a lane comes back in pieces, in order; batches leave the engine
in the order in which they were read. How much is out at a time is bounded, so a slow reader of the results slows
the lanes, and a slow row stops the others only when the window behind it is full.

When a lane dies, the rows it has answered stand. The rows it was working on are given out again, one at a time, to
find the one that kills. A row is tried twice more at most: if its lane dies each time, it is `crashed`.
"""

import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from evalcell.datasets import Row
from evalcell.engine.batches import Batch, Finished, Source, Span
from evalcell.engine.process import LaneProcess
from evalcell.engine.protocol import (
    Describe,
    Described,
    Done,
    Faulted,
    FromLane,
    NotDescribed,
    Open,
    Opened,
    SyntaxFailed,
    Work,
)
from evalcell.engine.rows import RowWork
from evalcell.errors import EvaluatorError
from evalcell.plan import Plan
from evalcell.records import Error
from evalcell_sandboxes import (
    Crashed,
    Description,
    Exceeded,
    Limits,
    Raised,
    Returned,
    SandboxFault,
    SandboxUnavailable,
    SyntaxProblem,
)

_BATCH_SECONDS = 0.1
_MOST_BATCH_ROWS = 256
_AHEAD = 2
"""Batches that a lane holds: one that it works on and one that waits, so that it never idles."""
_WINDOW = 8
"""Batches for each lane that may be read and not yet given out."""
_MOST_HELD_BYTES = 32 * 1024**2
_GRACE_SECONDS = 30.0
"""How much longer than its limits allow a lane may stay silent before it counts as dead."""
_LOADS = 2
"""How often a sandbox may load a program before its first row: once to compile it, once as every row will find it."""
_MOST_RETRIES = 2
_MOST_FAILED_STARTS = 3
_LANE_START_SECONDS = 0.3
_LISTEN_SECONDS = 0.2
"""How long to wait for lanes before looking up: at the silent ones, and whether the run was cancelled."""
_POLL_SECONDS = 0.05
"""How often a source that had no rows to give is asked again, while lanes are waited for."""


class _Lane:
    """A lane process with what it holds."""

    def __init__(self, process: LaneProcess) -> None:
        self.process = process
        self.ready = False
        self.spans: deque[Span] = deque()
        self.sent_at = 0.0


class Engine(AbstractContextManager["Engine"]):
    """Runs one plan. Leaving the context kills every lane."""

    def __init__(self, lanes: int) -> None:
        self._most_lanes = lanes
        self._lanes: list[_Lane] = []
        self._selector = selectors.DefaultSelector()
        self._plan: Plan | None = None
        self._work: RowWork | None = None
        self._batches: deque[Batch] = deque()
        self._waiting: deque[Span] = deque()
        self._batch_rows = 1
        self._failed_starts = 0
        self._rows_started = 0.0
        self._source = Source(iter(()))
        self.cancelled = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for lane in self._lanes:
            lane.process.kill()
        self._lanes.clear()
        self._selector.close()

    def lane_pids(self) -> list[int]:
        """The processes that this engine holds now."""
        return [lane.process.pid for lane in self._lanes]

    # -- before the rows ------------------------------------------------------------------------------------------
    def describe(
        self, source: str, limits: Limits, sandbox: str
    ) -> Callable[[], Description | SyntaxProblem | Exceeded | Crashed]:
        """Has a source parsed in a lane, so that no bytes of it are looked into in this process.

        Gives a function that waits for the answer, so that the caller can do something useful meanwhile. It raises
        `SandboxUnavailable` or `SandboxFault` when the sandbox could not do it.
        """
        question = Describe(source, limits, sandbox)
        self._start_lane().process.send(question)

        def answer() -> Description | SyntaxProblem | Exceeded | Crashed:
            return _description(self._answer(question, limits.load_seconds + _GRACE_SECONDS))

        return answer

    def open(self, plan: Plan) -> Opened:
        """Loads the plan's program in the first lane, the one that described it.

        Raises:
            EvaluatorError: The module's own code failed.
            SandboxUnavailable, SandboxFault: The sandbox could not do it.
        """
        self._plan = plan
        self._work = RowWork(plan)
        question = Open(plan)
        self._lanes[0].process.send(question)
        answer = self._answer(question, _LOADS * plan.confinement.limits.load_seconds + _GRACE_SECONDS)
        if not isinstance(answer, Opened):
            raise _error_of(answer)
        self._loaded(self._lanes[0], answer)
        return answer

    def _answer(self, question: Describe | Open, seconds: float) -> FromLane:
        """The first lane's answer to a question it was asked; a lane that dies over it is replaced and asked again."""
        while True:
            try:
                return self._lanes[0].process.answer(seconds)
            except SandboxFault:
                self._count_failed_start(self._drop(self._lanes[0]))
                self._start_lane().process.send(question)

    def _start_lane(self) -> _Lane:
        lane = _Lane(LaneProcess())
        self._lanes.append(lane)
        self._selector.register(lane.process.connection, selectors.EVENT_READ, lane)
        return lane

    def _loaded(self, lane: _Lane, opened: Opened) -> None:
        loaded = opened.loaded
        if not isinstance(loaded, Returned):
            raise _load_error(loaded)
        lane.ready = True
        self._failed_starts = 0

    def _welcome(self, lane: _Lane, opened: Opened) -> None:
        """A further lane is ready. If it is not, though others are, the run goes on with those."""
        if isinstance(opened.loaded, Returned) or not any(other.ready for other in self._lanes):
            self._loaded(lane, opened)
        else:
            self._drop(lane)
            self._most_lanes = max(1, len(self._lanes))

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
        self.cancelled = True

    def _has_room(self) -> bool:
        return (
            not self._is_full()
            and len(self._batches) < self._most_lanes * _WINDOW
            and len(self._waiting) < self._most_lanes
        )

    def _is_full(self) -> bool:
        return sum(batch.held_bytes for batch in self._batches) >= _MOST_HELD_BYTES

    def _hand_out(self) -> None:
        """Gives waiting spans to lanes that have room, starting lanes while there is more work than lanes."""
        for lane in sorted(self._lanes, key=lambda lane: len(lane.spans)):
            while lane.ready and self._waiting and len(lane.spans) < _AHEAD and self._may_take(lane):
                span = self._waiting.popleft()
                lane.spans.append(span)
                if len(lane.spans) == 1:
                    lane.sent_at = time.monotonic()
                lane.process.send(Work(span.rows()))  # to a dead lane too: what it said before is still to be heard
        if self._waiting and len(self._lanes) < self._most_lanes and self._worth_another_lane():
            assert self._plan is not None
            lane = self._start_lane()
            lane.process.send(Open(self._plan))

    def _worth_another_lane(self) -> bool:
        """One lane starts at a time, and a second one only when the run has lasted as long as its start would take."""
        starting = any(not lane.ready for lane in self._lanes)
        return not starting and (not self._lanes or time.monotonic() - self._rows_started > _LANE_START_SECONDS)

    def _may_take(self, lane: _Lane) -> bool:
        """A row that is suspected of killing lanes is given to a lane that holds nothing else."""
        return not lane.spans or not (self._waiting[0].alone or lane.spans[-1].alone)

    def _receive(self) -> None:
        """Waits for lanes to say something, and for those that have been silent too long."""
        self._choose_whom_to_hear()
        for key, _ in self._selector.select(
            timeout=_LISTEN_SECONDS if self._source.ended or not self._has_room() else _POLL_SECONDS
        ):
            lane: _Lane = key.data
            messages = lane.process.receive()
            if messages is None:
                self._bury(lane, None)
                continue
            for message in messages:
                if lane in self._lanes:
                    self._hear(lane, message)
        self._bury_the_silent()

    def _choose_whom_to_hear(self) -> None:
        """With too much held back, only the lane that has the next rows is heard: the others wait in their pipes."""
        head = self._batches[0] if self._batches else None
        holders = [lane for lane in self._lanes if any(span.batch is head for span in lane.spans)]
        for lane in self._lanes:
            wanted = not self._is_full() or not holders or not lane.spans or lane in holders
            if wanted and not self._hears(lane):
                self._selector.register(lane.process.connection, selectors.EVENT_READ, lane)
                lane.process.heard = time.monotonic()
            elif not wanted and self._hears(lane):
                self._selector.unregister(lane.process.connection)

    def _hears(self, lane: _Lane) -> bool:
        return lane.process.connection in self._selector.get_map()

    def _hear(self, lane: _Lane, message: FromLane) -> None:
        match message:
            case Opened():
                self._welcome(lane, message)
            case Done():
                self._fill(lane, message)
            case Faulted():
                if message.unavailable is not None or not lane.ready:
                    raise _error_of(message)
                self._bury(lane, message.message)
            case _:
                self._bury(lane, "it gave an answer nobody asked for")

    def _fill(self, lane: _Lane, done: Done) -> None:
        span = lane.spans[0]
        span.batch.fill(span.start, done)
        span.start += len(done.rows)
        if span.start >= span.stop:
            lane.spans.popleft()
            self._learn_pace(lane, span.size)

    def _learn_pace(self, lane: _Lane, rows: int) -> None:
        """Batches grow until one takes a tenth of a second: slow rows spread over lanes, fast ones travel together."""
        now = time.monotonic()
        seconds = max(now - lane.sent_at, 1e-4)
        lane.sent_at = now
        fitting = int(rows * _BATCH_SECONDS / seconds)
        self._batch_rows = max(1, min(fitting, self._batch_rows * 4, _MOST_BATCH_ROWS))

    # -- deaths ---------------------------------------------------------------------------------------------------
    def _bury(self, lane: _Lane, fault: str | None) -> None:
        """Removes a dead lane and gives its rows out again; a row that has used up its tries ends here."""
        how = self._drop(lane)
        if not lane.ready:
            self._count_failed_start(how)
        if not lane.spans:
            return
        first, *rest = lane.spans
        lane.spans.clear()
        again = first.one_by_one() if first.deaths < _MOST_RETRIES else []
        if not again:
            self._give_up(first, fault)
        self._waiting.extendleft(reversed([*again, *rest]))

    def _drop(self, lane: _Lane) -> str:
        if self._hears(lane):
            self._selector.unregister(lane.process.connection)
        self._lanes.remove(lane)
        return lane.process.kill()

    def _give_up(self, span: Span, fault: str | None) -> None:
        assert self._work is not None
        row = span.rows()[0]
        if fault is None:
            error = Error("crashed", f"the worker process died on this row, {span.deaths + 1} times")
        else:
            error = Error("infrastructure", f"the sandbox failed on this row, {span.deaths + 1} times: {fault}")
        lines = self._work.failed(row, self._work.bind(row).id, error)
        self._work.tally.rows += 1
        span.batch.fill(span.start, Done([lines], self._work.take_tally()))

    def _bury_the_silent(self) -> None:
        assert self._plan is not None
        limits = self._plan.confinement.limits
        patience = limits.wall_seconds + _LOADS * limits.load_seconds + _GRACE_SECONDS
        for lane in list(self._lanes):
            silent = time.monotonic() - lane.process.heard > patience
            if silent and self._hears(lane) and (lane.spans or not lane.ready):
                self._bury(lane, None)

    def _count_failed_start(self, how: str = "") -> None:
        self._failed_starts += 1
        if self._failed_starts >= _MOST_FAILED_STARTS:
            raise SandboxFault(
                f"Worker processes die before they are ready, {self._failed_starts} times in a row.{how}"
            )


def _description(answer: FromLane) -> Description | SyntaxProblem | Exceeded | Crashed:
    match answer:
        case Described(description):
            return description
        case SyntaxFailed(problem):
            return problem
        case NotDescribed(outcome):
            return outcome
    raise _error_of(answer)


def _error_of(answer: FromLane) -> SandboxUnavailable | SandboxFault:
    if isinstance(answer, Faulted) and answer.unavailable is not None:
        return SandboxUnavailable(answer.unavailable, answer.message)
    return SandboxFault(
        answer.message if isinstance(answer, Faulted) else f"unexpected answer: {type(answer).__name__}"
    )


def _load_error(loaded: object) -> EvaluatorError:
    match loaded:
        case Raised(exception=exception, message=message, traceback=traceback):
            return EvaluatorError(
                "raised", f"The module failed while it was loaded: {exception}: {message}", traceback=traceback
            )
        case Exceeded(limit=limit, message=message):
            return EvaluatorError("exceeded", f"The module ran into the limit {limit} while it was loaded: {message}.")
        case Crashed(message=message):
            return EvaluatorError("crashed", f"The module crashed while it was loaded: {message}.")
    return EvaluatorError("invalid_result", f"The module could not be loaded: {loaded!r:.300}")
