"""The way of a row inside a lane: bind, run, score, record."""

import math
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from evalcell import records
from evalcell.binding import Binder, Unbound
from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.paths import MISSING, Missing, Path
from evalcell.plan import Plan
from evalcell.records import Error, Record
from evalcell.scoring import InvalidResult, Score, scores_of
from evalcell.tally import Moments, Summary, Tally, count_label
from evalcell_sandboxes import Outcome, Returned, Session

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_value = msgspec.json.Decoder().decode
_BOUND_BYTES = 8 * 1024**2
_MOST_DONE_BYTES = 1024**2
_NO_SCORE = Score()
_text_or_integer = msgspec.json.Decoder(str | int).decode


class Ready(Struct, frozen=True, gc=False):
    """A row with its id, and either the arguments to run it with or the error that it ends with."""

    row: Row
    id: str | int
    arguments: bytes
    error: Error | None = None
    malformed: str | None = None


class RowWork:
    """Takes raw rows to finished record lines for one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._binder = Binder(plan.bindings)
        self._id_path = Path("id" if plan.id_path is None else plan.id_path)
        self._id_required = plan.id_path is not None
        self._takes_any_number = plan.output.kind == "freeform" and plan.output.threshold is None
        self.tally = Tally()
        self._new_scores: defaultdict[str, list[float]] = defaultdict(list)
        self._done: list[bytes] = []
        self._done_bytes = 0
        self._malformed: list[str] = []
        self._results: list[bytes] = []
        self._results_of_row: list[bytes] = []
        self._accounting = threading.Lock()

    def run(self, session: Session, rows: Sequence[Row]) -> Iterator[None]:
        """Takes rows to record lines, which `take` gives, also meanwhile. Pauses when there is much to take."""
        for some in self._bound(rows):
            outcomes = session.run([item.arguments for item in some if item.error is None])
            for item in some:
                outcome = next(outcomes) if item.error is None else None
                with self._accounting:
                    self._done_bytes += self._finish(item, outcome)
                if self._done_bytes > _MOST_DONE_BYTES:
                    yield

    def _finish(self, item: Ready, outcome: Outcome | None) -> int:
        """Makes the record lines of a row, and says how large they are."""
        if outcome is not None:
            lines = self._scored(item, outcome)
        else:
            assert item.error is not None
            lines = self.failed(item.row, item.id, item.error)
        self.tally.rows += 1
        self._done.append(lines)
        if self._plan.aggregates:
            self._results.append(self._take_results())
        if item.malformed is not None:
            self._malformed.append(item.malformed)
        return len(lines)

    def _bound(self, rows: Sequence[Row]) -> Iterator[list[Ready]]:
        """Rows with their arguments, as many at a time as weigh little: bindings may repeat a row many times over."""
        some: list[Ready] = []
        size = 0
        for row in rows:
            some.append(self.bind(row))
            size += len(some[-1].arguments)
            if size > _BOUND_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def take_tally(self) -> Tally:
        """What was counted since the last call."""
        for name, scores in self._new_scores.items():
            self.tally.summary(name).scores.merge(Moments.of(scores))
        self._new_scores.clear()
        taken, self.tally = self.tally, Tally()
        return taken

    def take(self) -> Done | None:
        """What was done since the last call: rows and their tally always together, from whatever thread it is asked."""
        with self._accounting:
            if not self._done:
                return None
            done = Done(self._done, self.take_tally(), self._malformed, self._results)
            self._done, self._malformed, self._results, self._done_bytes = [], [], [], 0
            return done

    def _take_results(self) -> bytes:
        """What `aggregate` will be given of the row that was finished last: nothing, where it has no score."""
        taken, self._results_of_row = self._results_of_row, []
        return b",".join(taken)

    def bind(self, row: Row) -> Ready:
        """Makes a row's arguments, or the `binding` error that says why there are none."""
        try:
            if not row.text.isascii():
                row.text.decode()
            fields = _fields(row.text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"{row.place()} {row.problem or f'is not a JSON object: {error}'}"
            return Ready(row, row.index, b"", Error("binding", why), why)
        identity = self._identity(row, fields)
        if identity is None:
            if self._id_required:
                why = f"the id path {self._id_path.text!r} finds no text or integer in this row"
                return Ready(row, row.index, b"", Error("binding", why))
            identity = row.index
        arguments = self._binder.arguments(row.text, fields)
        if isinstance(arguments, Unbound):
            return Ready(row, identity, b"", Error("binding", arguments.message))
        return Ready(row, identity, arguments)

    def _identity(self, row: Row, fields: dict[str, Raw]) -> str | int | None:
        path = self._id_path
        found = fields.get(path.field, MISSING) if path.field is not None else path.find_in_fields(row.text, fields)
        if isinstance(found, Missing):
            return None
        try:
            identity: str | int = _text_or_integer(found)
        except msgspec.DecodeError:
            return None
        return identity

    def failed(self, row: Row, identity: str | int, error: Error, outcome: Outcome | None = None) -> bytes:
        """The record of a row without a score."""
        failures, name = self.tally.failures, _failure_name(error)
        failures[name] = failures.get(name, 0) + 1
        return records.encode(self._record(row, identity, _NO_SCORE, outcome, "failed", error)) + b"\n"

    def _scored(self, item: Ready, outcome: Outcome) -> bytes:
        if not isinstance(outcome, Returned):
            return self.failed(item.row, item.id, records.error_of(outcome), outcome)
        try:
            value = _value(outcome.value)
            if self._takes_any_number and type(value) is float and math.isfinite(value):
                return self._number_line(item, outcome, value)
            scores = scores_of(value, self._plan.output, self._plan.evaluator)
        except InvalidResult as invalid:
            return self.failed(item.row, item.id, Error("invalid_result", str(invalid)), outcome)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"what came back cannot be read: {error}"
            return self.failed(item.row, item.id, Error("invalid_result", why), outcome)
        lines = self._line(item, outcome, scores[0])
        if len(scores) > 1:
            silent = msgspec.structs.replace(outcome, stdout="", stderr="")  # prints are the row's, and stand once
            lines = b"".join([lines, *(self._line(item, silent, score) for score in scores[1:])])
        return lines

    def _number_line(self, item: Ready, outcome: Outcome, number: float) -> bytes:
        """The line of a plain number where any will do, as most are: what `_line` makes of it, in half the time."""
        plan = self._plan
        name = plan.evaluator
        record = Record(
            item.row.index, item.id, name, name, plan.version, plan.sandbox, "scored", number,
            stdout=outcome.stdout, stderr=outcome.stderr, usage=outcome.usage,
        )  # fmt: skip
        (self.tally.names.get(name) or self.tally.summary(name)).scored += 1
        self._new_scores[name].append(number)
        if plan.aggregates:
            self._results_of_row.append(records.result_of(record))
        return records.encode(record) + b"\n"

    def _line(self, item: Ready, outcome: Outcome, score: Score) -> bytes:
        status: records.Status = "skipped" if score.skipped else "scored"
        record = self._record(item.row, item.id, score, outcome, status)
        summary = self.tally.names.get(record.name) or self.tally.summary(record.name)
        if score.skipped:
            summary.skipped += 1
        else:
            self._count(record, summary)
        return records.encode(record) + b"\n"

    def _count(self, record: Record, summary: Summary) -> None:
        summary.scored += 1
        if record.score is not None:
            self._new_scores[record.name].append(record.score)
        if record.label is not None:
            count_label(summary.labels, record.label)
        if record.passed is not None:
            summary.judged += 1
            summary.passed += record.passed
        if self._plan.aggregates:
            self._results_of_row.append(records.result_of(record))

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


def _failure_name(error: Error) -> str:
    return f"{error.kind} ({error.limit})" if error.limit else error.kind
