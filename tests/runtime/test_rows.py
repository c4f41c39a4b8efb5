"""What a lane makes of outcomes, whether it looks at them one by one or at many at once."""

import json
from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from evalcell import records
from evalcell.binding import Binding
from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.engine.rows import RowWork
from evalcell.output import Output
from evalcell.plan import Plan
from evalcell_sandboxes import Confinement, Outcome, Program, Raised, Returned, Session, Usage


class Prepared(Session):
    """Gives prepared outcomes, so many at a time."""

    loaded = Returned(value=b"null")

    def __init__(self, outcomes: Sequence[Outcome], sizes: Sequence[int]) -> None:
        self._outcomes = list(outcomes)
        self._sizes = sizes
        self.rows: list[bytes] = []

    def fit(self, rows: Sequence[bytes]) -> Outcome:
        raise NotImplementedError

    def aggregate(self, results: bytes) -> Outcome:
        raise NotImplementedError

    def bursts(self, rows: Sequence[bytes]) -> Iterator[list[Outcome]]:
        self.rows += rows
        left = list(rows)
        for size in [*self._sizes, *[1] * len(left)]:
            burst = [self._outcomes.pop(0) for _ in left[:size]]
            del left[:size]
            if not burst:
                return
            yield burst


def plan(output: Output | None = None, *, aggregates: bool = False) -> Plan:
    return Plan(
        evaluator="scored",
        version="0",
        sandbox="wasm",
        program=Program(source="", filename="scored.py"),
        confinement=Confinement(),
        bindings=(Binding("output", path="output"),),
        output=output or Output(),
        aggregates=aggregates,
    )


def work_through(plan: Plan, rows: list[bytes], outcomes: Sequence[Outcome], sizes: Sequence[int] = ()) -> Done:
    work = RowWork(plan)
    list(work.run(Prepared(outcomes, sizes), [Row(n, n + 1, text) for n, text in enumerate(rows)]))
    done = work.take()
    assert done is not None
    return done


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(10**300, 10**330)
VALUES = NUMBERS | st.sampled_from([True, None, "a label", [], {"score": 1, "label": "x"}, {"a": 1, "b": {"score": 2}}])
FAILED = st.just(Raised(exception="ValueError", message="no"))
PRINTS = st.sampled_from(["", "printed\n"])


def returned(values: st.SearchStrategy) -> st.SearchStrategy[Outcome]:
    return st.builds(
        lambda value, prints: Returned(value=json.dumps(value).encode(), stdout=prints, usage=Usage(1.0)),
        values,
        PRINTS,
    )


@given(
    st.lists(returned(NUMBERS), min_size=1, max_size=6) | st.lists(returned(VALUES) | FAILED, min_size=1, max_size=6)
)
def test_many_at_once_are_what_each_is_alone(outcomes):
    rows = [b'{"output": 1}'] * len(outcomes)
    together = work_through(plan(aggregates=True), rows, outcomes, [len(outcomes)])
    alone = work_through(plan(aggregates=True), rows, outcomes)
    assert together.rows == alone.rows
    assert together.results == alone.results
    assert together.tally == alone.tally
    assert [records.decode(line.splitlines()[0]).row for line in together.rows] == list(range(len(rows)))


@given(st.lists(returned(NUMBERS), min_size=1, max_size=6))
def test_plain_numbers_are_recorded_as_the_long_way_round_does(outcomes):
    rows = [b'{"output": 1}'] * len(outcomes)
    quick = work_through(plan(aggregates=True), rows, outcomes, [len(outcomes)])
    slow_work = RowWork(plan(aggregates=True))
    slow_work._takes_any_number = False
    list(slow_work.run(Prepared(outcomes, [len(outcomes)]), [Row(n, n + 1, text) for n, text in enumerate(rows)]))
    assert slow_work.take() == quick


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.lists(st.integers(1, 5), max_size=4))
def test_rows_without_arguments_fail_in_their_place(bound, sizes):
    rows = [b'{"output": 1}' if good else b"nonsense" for good in bound]
    outcomes = [Returned(value=b"%d" % n) for n in range(sum(bound))]
    done = work_through(plan(), rows, outcomes, sizes)
    found = [records.decode(line) for line in done.rows]
    assert [record.row for record in found] == list(range(len(rows)))
    assert [record.status == "scored" for record in found] == bound
    assert [record.score for record in found if record.score is not None] == list(range(sum(bound)))
    assert len(done.malformed) == bound.count(False)
    assert done.tally.rows == len(rows)


def test_several_scores_stand_on_the_line_of_their_row_with_the_prints_once():
    several = Returned(value=b'{"a": 1, "b": 2}', stdout="printed\n")
    done = work_through(plan(), [b'{"output": 1}'] * 3, [several, Returned(value=b"3"), several], [3])
    assert [lines.count(b"\n") for lines in done.rows] == [2, 1, 2]
    first, second = map(records.decode, done.rows[2].splitlines())
    assert (first.name, first.stdout, second.name, second.stdout) == ("a", "printed\n", "b", "")
    assert (first.row, second.row) == (2, 2)
