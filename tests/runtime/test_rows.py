"""What a lane makes of outcomes, whether it looks at them one by one or at many at once."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import plan

from evalcell import records
from evalcell.datasets import Row
from evalcell.engine.protocol import Done
from evalcell.engine.rows import RowWork
from evalcell.tally import Tally
from evalcell_sandboxes import Outcome, Raised, Returned, Session, Usage


class Prepared(Session):
    """Gives prepared outcomes, so many at a time."""

    loaded = Returned(value=b"null")

    def __init__(self, outcomes: Sequence[Outcome], sizes: Sequence[int]) -> None:
        self._outcomes = list(outcomes)
        self._sizes = sizes

    def fit(self, rows: Sequence[bytes]) -> Outcome:
        raise AssertionError("rows are all that it is given")

    def aggregate(self, results: bytes) -> Outcome:
        raise AssertionError("rows are all that it is given")

    def bursts(self, rows: Sequence[bytes]) -> Iterator[list[Outcome]]:
        left = list(rows)
        for size in [*self._sizes, *[1] * len(left)]:
            burst = [self._outcomes.pop(0) for _ in left[:size]]
            del left[:size]
            if not burst:
                return
            yield burst


def rows_of(texts: Sequence[bytes]) -> list[Row]:
    return [Row(number, number + 1, text) for number, text in enumerate(texts)]


def work_through(work: RowWork, texts: Sequence[bytes], outcomes: Sequence[Outcome], sizes: Sequence[int] = ()) -> Done:
    list(work.run(Prepared(outcomes, sizes), rows_of(texts)))
    done = work.take()
    assert done is not None
    return done


def one_by_one(work: RowWork, texts: Sequence[bytes], outcomes: Sequence[Outcome]) -> list[Done]:
    session = Prepared(outcomes, [])
    found = []
    for row in rows_of(texts):
        list(work.run(session, [row]))
        found.append(work.take())
    return found


# Not so large that their moments are no numbers, which would not equal themselves.
NUMBERS = st.integers() | st.floats(-1e100, 1e100) | st.integers(10**300, 10**330).filter(lambda n: n > 10**310)
VALUES = NUMBERS | st.sampled_from([True, None, "a label", [], {"score": 1, "label": "x"}, {"a": 1, "b": {"score": 2}}])
FAILED = st.just(Raised(exception="ValueError", message="no"))
PRINTS = st.sampled_from(["", "printed\n"])
BOUND = b'{"output": 1}'


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
    texts = [BOUND] * len(outcomes)
    together = work_through(RowWork(plan(aggregates=True)), texts, outcomes, [len(outcomes)])
    alone = one_by_one(RowWork(plan(aggregates=True)), texts, outcomes)
    assert together.rows == [line for done in alone for line in done.rows]
    assert together.results == [result for done in alone for result in done.results]
    merged = Tally()
    for done in alone:
        merged.merge(done.tally)
    assert counts(merged) == counts(together.tally)


def counts(tally: Tally) -> Any:
    names = {
        name: (
            found.scored,
            found.skipped,
            found.judged,
            found.passed,
            found.labels,
            found.scores.count,
            found.scores.least,
            found.scores.most,
        )
        for name, found in tally.names.items()
    }
    return tally.rows, tally.failures, names


@given(st.lists(returned(NUMBERS), min_size=1, max_size=6) | st.lists(returned(st.booleans()), min_size=1, max_size=6))
def test_plain_numbers_and_verdicts_are_recorded_as_the_long_way_round_does(outcomes):
    texts = [BOUND] * len(outcomes)
    quick, slow = RowWork(plan(aggregates=True)), RowWork(plan(aggregates=True))
    slow._takes_any_number = False
    assert work_through(slow, texts, outcomes) == work_through(quick, texts, outcomes)


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.lists(st.integers(1, 5), max_size=4))
def test_rows_without_arguments_fail_in_their_place(bound, sizes):
    texts = [BOUND if good else b"nonsense" for good in bound]
    outcomes = [Returned(value=b"%d" % n) for n in range(sum(bound))]
    done = work_through(RowWork(plan()), texts, outcomes, sizes)
    found = [records.decode(line) for line in done.rows]
    assert [record.row for record in found] == list(range(len(texts)))
    assert [record.status == "scored" for record in found] == bound
    assert [record.score for record in found if record.score is not None] == list(range(sum(bound)))
    assert len(done.malformed) == bound.count(False)
    assert done.tally.rows == len(texts)


@pytest.mark.parametrize(
    "outcome", [Returned(value=b'"%b"' % (b"x" * 300_000)), Returned(value=b"1", stderr="x" * 300_000)]
)
def test_what_is_large_does_not_pile_up(outcome):
    """The lane is asked to send before the outcomes of 20 rows, 6 MB, are held."""
    work = RowWork(plan())
    taken = [work.take() for _ in work.run(Prepared([outcome] * 20, []), rows_of([BOUND] * 20))]
    assert len(taken) >= 4
    assert sum(len(done.rows) for done in [*taken, work.take()] if done is not None) == 20


def test_what_is_small_is_recorded_many_at_a_time():
    work = RowWork(plan())
    finished = []
    work._finish = lambda: finished.append(len(work._items))
    list(work.run(Prepared([Returned(value=b"1")] * 63, []), rows_of([BOUND] * 63)))
    assert finished == []
    list(work.run(Prepared([Returned(value=b"1")], []), rows_of([BOUND])))
    assert finished == [64]


def test_whoever_takes_meanwhile_loses_nothing():
    outcomes = [Returned(value=b"%d" % n) if n % 7 else Raised(exception="E", message="no") for n in range(5_000)]
    work, taken, over = RowWork(plan()), [], threading.Event()

    def take() -> None:
        while not over.is_set():
            taken.append(work.take())

    taking = threading.Thread(target=take)
    taking.start()
    list(work.run(Prepared(outcomes, [3, 1, 200] * 5), rows_of([BOUND] * len(outcomes))))
    over.set()
    taking.join()
    parts = [done for done in [*taken, work.take()] if done is not None]
    assert [records.decode(line).row for done in parts for line in done.rows] == list(range(len(outcomes)))
    assert all(done.tally.rows == len(done.rows) for done in parts)


@pytest.mark.parametrize(("thread", "answered"), [("the one that works", []), ("the one that flushes", [0, 1])])
def test_a_bug_while_rows_are_recorded_ends_the_lane_and_loses_no_row(thread, answered):
    """Rows that come after those in question must not take their places."""
    found = subprocess.run(
        [sys.executable, "-c", _BUGGY_LANE, thread], capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.split("\n", 1)[0] == f"rows {answered}"
    assert "a bug of ours" in found.stdout


_BUGGY_LANE = """
import os, socket, sys, threading, time
from contextlib import ExitStack
from evalcell import records
from evalcell.binding import Binding
from evalcell.datasets import Row
from evalcell.engine import rows
from evalcell.engine.lane import Lane
from evalcell.engine.protocol import Done, Faulted, Frames, Work, decode_from_lane
from evalcell.output import Output
from evalcell.plan import Plan
from evalcell_sandboxes import Confinement, Program, Returned

def scores_of(value, *others, real=rows.scores_of):
    if value == "boom":
        raise KeyError("a bug of ours")
    return real(value, *others)

class Slow:
    def bursts(self, arguments):
        for number, _ in enumerate(arguments):
            yield [Returned(value=b'"boom"' if number == 2 else b"1.5")]
            time.sleep(0.3 if flushing else 0)

rows.scores_of, flushing = scores_of, sys.argv[1] == "the one that flushes"
here, there = socket.socketpair()
if (child := os.fork()) == 0:
    there.close()
    lane = Lane(here, ExitStack())
    lane._session = Slow()
    lane._work = rows.RowWork(Plan(
        evaluator="e", version="0", sandbox="wasm", program=Program(source="", filename="e.py"),
        confinement=Confinement(), bindings=(Binding("output", path="output"),), output=Output(),
    ))
    if flushing:
        threading.Thread(target=lane.flush_forever, daemon=True).start()
    try:
        lane.serve(Work([Row(number, None, b'{"output": 1}') for number in range(6)]))
    except KeyError as error:
        lane.end(Faulted(repr(error)))
    os._exit(5)
here.close()
frames, found = Frames(there), []
while (bodies := frames.receive()) is not None:
    found += map(decode_from_lane, bodies)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 1, status
print("rows", [records.decode(line).row for done in found if isinstance(done, Done) for line in done.rows])
(fault,) = [message for message in found if isinstance(message, Faulted)]
print(fault.message)
"""


def test_several_scores_stand_on_the_line_of_their_row_with_the_prints_once():
    several = Returned(value=b'{"a": 1, "b": 2}', stdout="printed\n")
    done = work_through(RowWork(plan()), [BOUND] * 3, [several, Returned(value=b"3"), several], [3])
    assert [lines.count(b"\n") for lines in done.rows] == [2, 1, 2]
    first, second = map(records.decode, done.rows[2].splitlines())
    assert (first.name, first.stdout, second.name, second.stdout) == ("a", "printed\n", "b", "")
    assert (first.row, second.row) == (2, 2)
