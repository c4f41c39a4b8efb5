"""The way of a row inside a lane: bind, run, score, record."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import NamedTuple

import msgspec

from evalcell import records
from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.engine.ready import Ready, RowBinder
from evalcell.plan import Plan
from evalcell.records import Error, Record
from evalcell.scoring import InvalidResult, Score, scores_of
from evalcell.tally import Moments, Summary, Tally, count_label
from evalcell_sandboxes import Outcome, Returned, Session

_value = msgspec.json.Decoder().decode
_numbers: Callable[[bytes], list[float]] = msgspec.json.Decoder(list[float]).decode
_verdicts: Callable[[bytes], list[bool]] = msgspec.json.Decoder(list[bool]).decode
_VERDICTS = (b"true", b"false")
_MANY_ROWS = 64
_MUCH_BYTES = 64 * 1024
_MOST_DONE_BYTES = 1024**2
_NO_SCORE = Score()


class RowWork:
    """Takes raw rows to finished record lines for one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._binder = RowBinder(plan)
        self._takes_any_number = plan.output.kind == "freeform" and plan.output.threshold is None
        self._tally = Tally()
        self._new_scores: defaultdict[str, list[float]] = defaultdict(list)
        self._items: list[Ready] = []
        self._outcomes: list[Outcome] = []
        """Those of the items that are not in error."""
        self._done: list[bytes] = []
        self._done_bytes = 0
        self._malformed: list[str] = []
        self._results: list[bytes] = []
        self._accounting = threading.Lock()

    def run(self, session: Session, rows: Sequence[Row]) -> Iterator[None]:
        """Takes rows to record lines, which `take` gives, also meanwhile. Pauses when there is much to take."""
        for some in self._binder.bind_all(rows):
            for items, outcomes in _as_they_come(session, some):
                with self._accounting:
                    self._items += items
                    self._outcomes += outcomes
                    if len(self._items) >= _MANY_ROWS or sum(map(_size, outcomes)) > _MUCH_BYTES:
                        self._finish()
                if self._done_bytes > _MOST_DONE_BYTES:
                    yield

    def give_up(self, row: Row, error: Error) -> Done:
        """What is done of a row that cannot be run."""
        with self._accounting:
            self._write([[self._failed(row, self._binder.bind(row).id, error)]])
        done = self.take()
        assert done is not None
        return done

    def take(self) -> Done | None:
        """What was done since the last call: rows and their tally always together, from whatever thread it is asked."""
        with self._accounting:
            self._finish()
            if not self._done:
                return None
            for name, scores in self._new_scores.items():
                self._tally.summary(name).scores.merge(Moments.of(scores))
            done = Done(self._done, self._tally, self._malformed, self._results)
            self._done, self._tally, self._malformed, self._results = [], Tally(), [], []
            self._new_scores.clear()
            self._done_bytes = 0
            return done

    def _finish(self) -> None:
        """Makes the record lines of the rows that have been run. Of many at once, because it takes each less time."""
        if not self._items:
            return
        items, outcomes = self._items, self._outcomes
        plain = _plain(outcomes) if self._takes_any_number and len(items) == len(outcomes) else None
        if plain is not None:
            self._write_plain(items, outcomes, plain)
        else:
            coming = iter(outcomes)
            self._write([self._records(item, None if item.error is not None else next(coming)) for item in items])
            self._malformed += [item.malformed for item in items if item.malformed is not None]
        self._items, self._outcomes = [], []  # only now: rows that a bug of ours keeps from it must not go missing

    def _write_plain(self, items: list[Ready], outcomes: list[Outcome], plain: "_Plain") -> None:
        """Writes the records of plain numbers or verdicts: what `_records` makes of them, in a third of the time."""
        plan = self._plan
        name, version, sandbox = plan.evaluator, plan.version, plan.sandbox
        summary = self._tally.summary(name)
        summary.scored += len(plain.numbers)
        summary.judged += len(plain.verdicts)
        summary.passed += sum(plain.verdicts)
        self._new_scores[name] += plain.numbers
        self._write(
            [
                [
                    Record(
                        item.row.index, item.id, name, name, version, sandbox, "scored", number, passed=verdict,
                        stdout=outcome.stdout, stderr=outcome.stderr, usage=outcome.usage,
                    )
                ]
                for item, outcome, number, verdict in zip(
                    items, outcomes, plain.numbers, plain.verdicts or repeat(None), strict=False
                )
            ]
        )  # fmt: skip

    def _write(self, rows: list[list[Record]]) -> None:
        """Makes lines of the records of each row."""
        lines = records.encode_lines([record for row in rows for record in row]).splitlines(keepends=True)
        if len(lines) > len(rows):
            ends = accumulate(map(len, rows), initial=0)
            lines = [b"".join(lines[start:end]) for start, end in pairwise(ends)]
        self._done += lines
        self._done_bytes += sum(map(len, lines))
        self._tally.rows += len(rows)
        if self._plan.aggregates:
            self._results += [b",".join(map(records.result_of, filter(_is_scored, row))) for row in rows]

    def _records(self, item: Ready, outcome: Outcome | None) -> list[Record]:
        if outcome is None:
            assert item.error is not None
            return [self._failed(item.row, item.id, item.error)]
        if not isinstance(outcome, Returned):
            return [self._failed(item.row, item.id, records.error_of(outcome), outcome)]
        try:
            scores = scores_of(_value(outcome.value), self._plan.output, self._plan.evaluator)
        except InvalidResult as invalid:
            return [self._failed(item.row, item.id, Error("invalid_result", str(invalid)), outcome)]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"what came back cannot be read: {error}"
            return [self._failed(item.row, item.id, Error("invalid_result", why), outcome)]
        first = self._scored(item, outcome, scores[0])
        if len(scores) == 1:
            return [first]
        silent = msgspec.structs.replace(outcome, stdout="", stderr="")  # prints are the row's, and stand once
        return [first, *(self._scored(item, silent, score) for score in scores[1:])]

    def _failed(self, row: Row, identity: str | int, error: Error, outcome: Outcome | None = None) -> Record:
        """The record of a row without a score."""
        failures, name = self._tally.failures, _failure_name(error)
        failures[name] = failures.get(name, 0) + 1
        return self._record(row, identity, _NO_SCORE, outcome, "failed", error)

    def _scored(self, item: Ready, outcome: Outcome, score: Score) -> Record:
        status: records.Status = "skipped" if score.skipped else "scored"
        record = self._record(item.row, item.id, score, outcome, status)
        summary = self._tally.summary(record.name)
        if score.skipped:
            summary.skipped += 1
        else:
            self._count(record, summary)
        return record

    def _count(self, record: Record, summary: Summary) -> None:
        summary.scored += 1
        if record.score is not None:
            self._new_scores[record.name].append(record.score)
        if record.label is not None:
            count_label(summary.labels, record.label)
        if record.passed is not None:
            summary.judged += 1
            summary.passed += record.passed

    def _record(
        self,
        row: Row,
        identity: str | int,
        score: Score,
        outcome: Outcome | None,
        status: records.Status,
        error: Error | None = None,
    ) -> Record:
        plan = self._plan
        return Record(
            row.index,
            identity,
            plan.evaluator,
            score.name or plan.evaluator,
            plan.version,
            plan.sandbox,
            status,
            score.score,
            score.label,
            score.passed,
            score.explanation,
            score.metadata,
            error,
            outcome.stdout if outcome else "",
            outcome.stderr if outcome else "",
            outcome.usage if outcome else None,
        )


def _as_they_come(session: Session, items: list[Ready]) -> Iterator[tuple[list[Ready], list[Outcome]]]:
    """Runs rows: some of them at a time with the outcomes of those that are not in error."""
    runnable = [number for number, item in enumerate(items) if item.error is None]
    start = known = 0
    for outcomes in session.bursts([items[number].arguments for number in runnable]):
        known += len(outcomes)
        end = runnable[known - 1] + 1
        yield items[start:end], outcomes
        start = end
    if start < len(items):
        yield items[start:], []


class _Plain(NamedTuple):
    """What came back where all are numbers; or all are verdicts, which are numbers too."""

    numbers: list[float]
    verdicts: list[bool]


def _plain(outcomes: list[Outcome]) -> _Plain | None:
    """What came back if it is plain, for then it need not be looked at one by one."""
    try:
        values = [outcome.value for outcome in outcomes]  # type: ignore[union-attr]
        together = b"[%b]" % b",".join(values)
        verdicts = _verdicts(together) if values[0] in _VERDICTS else []
        numbers = [float(verdict) for verdict in verdicts] or _numbers(together)
    except (AttributeError, msgspec.DecodeError):  # one has failed, or is something else
        return None
    return _Plain(numbers, verdicts) if len(numbers) == len(outcomes) else None


def _size(outcome: Outcome) -> int:
    """How much of it the guest decides about, but for what is bounded in every outcome."""
    return len(outcome.stdout) + len(outcome.stderr) + (len(outcome.value) if isinstance(outcome, Returned) else 0)


def _is_scored(record: Record) -> bool:
    return record.status == "scored"


def _failure_name(error: Error) -> str:
    return f"{error.kind} ({error.limit})" if error.limit else error.kind
