"""The way of a row inside a lane: bind, run, score, record."""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

import msgspec
from msgspec import Raw

from evalcell import records
from evalcell.binding import Binder, Unbound
from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.paths import Missing, Path
from evalcell.plan import Plan
from evalcell.records import Error, Record
from evalcell.scoring import InvalidResult, Score, scores_of
from evalcell.tally import Tally, count_label
from evalcell_sandboxes import Crashed, Exceeded, Invalid, Outcome, Raised, Returned, Session

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_value = msgspec.json.Decoder().decode
_BOUND_BYTES = 8 * 1024**2
_text_or_integer = msgspec.json.Decoder(str | int).decode


class Ready(NamedTuple):
    """A row with its id, and either the arguments to run it with or the error that it ends with."""

    row: Row
    id: str | int
    arguments: bytes | Error
    malformed: str | None = None


class RowWork:
    """Takes raw rows to finished record lines for one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._binder = Binder(plan.bindings)
        self._id_path = Path("id" if plan.id_path is None else plan.id_path)
        self._id_required = plan.id_path is not None
        self.tally = Tally()
        self._done: list[bytes] = []
        self._malformed: list[str] = []
        self._results: list[bytes] = []
        self._results_of_row: list[bytes] = []
        self._accounting = threading.Lock()

    def run(self, session: Session, rows: Sequence[Row]) -> Iterator[bytes]:
        """For each row its record lines, as soon as they are known. `take` gives them too, with what they add up to."""
        for some in self._bound(rows):
            outcomes = session.run([item.arguments for item in some if isinstance(item.arguments, bytes)])
            for item in some:
                outcome = None if isinstance(item.arguments, Error) else next(outcomes)
                with self._accounting:
                    lines = self._finished(item, outcome)
                    self.tally.rows += 1
                    self._done.append(lines)
                    if self._plan.aggregates:
                        self._results.append(self._take_results())
                    if item.malformed is not None:
                        self._malformed.append(item.malformed)
                yield lines

    def _finished(self, item: Ready, outcome: Outcome | None) -> bytes:
        if isinstance(item.arguments, Error):
            return self.failed(item.row, item.id, item.arguments)
        assert outcome is not None
        return self._scored(item, outcome)

    def _bound(self, rows: Sequence[Row]) -> Iterator[list[Ready]]:
        """Rows with their arguments, as many at a time as weigh little: bindings may repeat a row many times over."""
        some: list[Ready] = []
        size = 0
        for row in rows:
            some.append(self.bind(row))
            size += len(some[-1].arguments) if isinstance(some[-1].arguments, bytes) else 0
            if size > _BOUND_BYTES:
                yield some
                some, size = [], 0
        if some:
            yield some

    def take_tally(self) -> Tally:
        """What was counted since the last call."""
        taken, self.tally = self.tally, Tally()
        return taken

    def take(self) -> Done | None:
        """What was done since the last call: rows and their tally always together, from whatever thread it is asked."""
        with self._accounting:
            if not self._done:
                return None
            done = Done(self._done, self.take_tally(), self._malformed, self._results)
            self._done, self._malformed, self._results = [], [], []
            return done

    def _take_results(self) -> bytes:
        """What `aggregate` will be given of the row that was finished last: nothing, where it has no score."""
        taken, self._results_of_row = self._results_of_row, []
        return b",".join(taken)

    def bind(self, row: Row) -> Ready:
        """Makes a row's arguments, or the `binding` error that says why there are none."""
        try:
            row.text.decode()
            fields = _fields(row.text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"{row.place()} {row.problem or f'is not a JSON object: {error}'}"
            return Ready(row, row.index, Error("binding", why), malformed=why)
        found = self._id_path.find_in_fields(row.text, fields)
        identity = self._identity(found)
        if identity is None:
            if self._id_required:
                return Ready(
                    row,
                    row.index,
                    Error("binding", f"the id path {self._id_path.text!r} finds no text or integer in this row"),
                )
            identity = row.index
        arguments = self._binder.arguments(row.text, fields)
        if isinstance(arguments, Unbound):
            return Ready(row, identity, Error("binding", arguments.message))
        return Ready(row, identity, arguments)

    @staticmethod
    def _identity(found: Raw | Missing) -> str | int | None:
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
        return records.encode(self._record(row, identity, Score(), outcome, "failed", error)) + b"\n"

    def _scored(self, item: Ready, outcome: Outcome) -> bytes:
        error = _error_of(outcome)
        if error is None and isinstance(outcome, Returned):
            try:
                scores = scores_of(_decoded(outcome.value), self._plan.output, self._plan.evaluator)
            except InvalidResult as invalid:
                error = Error("invalid_result", str(invalid))
            else:
                return self._scores(item, outcome, scores)
        assert error is not None
        return self.failed(item.row, item.id, error, outcome)

    def _scores(self, item: Ready, outcome: Outcome, scores: list[Score]) -> bytes:
        lines = []
        for score in scores:
            record = self._record(item.row, item.id, score, outcome, "skipped" if score.skipped else "scored")
            lines.append(records.encode(record) + b"\n")
            if self._plan.aggregates and record.status == "scored":
                self._results_of_row.append(records.result_of(record))
            _count(self.tally, record)
            outcome = _without_prints(outcome)
        return b"".join(lines)

    def _record(
        self,
        row: Row,
        identity: str | int,
        score: Score,
        outcome: Outcome | None,
        status: records.Status,
        error: Error | None = None,
    ) -> Record:
        return Record(
            row=row.index,
            id=identity,
            evaluator=self._plan.evaluator,
            name=score.name or self._plan.evaluator,
            version=self._plan.version,
            sandbox=self._plan.sandbox,
            status=status,
            score=score.score,
            label=score.label,
            passed=score.passed,
            explanation=score.explanation,
            metadata=score.metadata,
            error=error,
            stdout=outcome.stdout if outcome else "",
            stderr=outcome.stderr if outcome else "",
            usage=outcome.usage if outcome else None,
        )


def _without_prints(outcome: Outcome) -> Outcome:
    """What the row's second score is recorded with: prints are the row's, and stand once."""
    if not (outcome.stdout or outcome.stderr):
        return outcome
    return msgspec.structs.replace(outcome, stdout="", stderr="")


def _decoded(value: bytes) -> object:
    try:
        return _value(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidResult(f"what came back cannot be read: {error}") from None


def _error_of(outcome: Outcome) -> Error | None:
    """The error that an outcome means for its row; None when it returned."""
    match outcome:
        case Returned():
            return None
        case Raised(exception=exception, message=message, traceback=traceback):
            return Error("raised", f"{exception}: {message}" if message else exception, traceback)
        case Exceeded(limit=limit, message=message):
            return Error("exceeded", message, limit=limit)
        case Crashed(message=message):
            return Error("crashed", message)
        case Invalid(message=message):
            return Error("invalid_result", message)
    assert_never(outcome)


def _failure_name(error: Error) -> str:
    return f"{error.kind} ({error.limit})" if error.limit else error.kind


def _count(tally: Tally, record: Record) -> None:
    summary = tally.summary(record.name)
    if record.status == "skipped":
        summary.skipped += 1
        return
    summary.scored += 1
    if record.score is not None:
        summary.scores.add(record.score)
    if record.label is not None:
        count_label(summary.labels, record.label)
    if record.passed is not None:
        summary.judged += 1
        summary.passed += record.passed
