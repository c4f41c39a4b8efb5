"""`fit` before the rows, in real lanes and the real sandbox."""

import asyncio
import os
import signal
import time
from collections import Counter

import pytest
from hooking import ECHO, FIT, SEEN, numbers, start

import evalcell
from evalcell import fitting
from evalcell.datasets import Row
from evalcell.engine import pool
from evalcell.engine.engine import Engine
from evalcell.engine.pool import Pool
from evalcell.engine.process import LaneProcess
from evalcell.engine.protocol import Fit, Fitted
from evalcell_sandboxes import Raised, SandboxFault


def test_every_row_starts_from_the_state_after_fit():
    found = list(start(SEEN, numbers(5)).results())
    assert [(record.score, record.label) for record in found] == [(n, "[0, 1, 2, 3, 4]") for n in range(5)]


def test_every_lane_is_fitted_on_the_same_rows(monkeypatch):
    rows_of = Counter()
    fill = Engine._fill

    def count(self, lane, done):
        rows_of[lane.process.pid] += len(done.rows)
        fill(self, lane, done)

    monkeypatch.setattr(Engine, "_fill", count)
    source = FIT + "def evaluate(output):\n    for _ in range(200_000): pass\n    return {'label': str(seen)}\n"
    found = list(start(source, numbers(200), fit_rows=7, workers=2).results())
    assert {record.label for record in found} == {"[0, 1, 2, 3, 4, 5, 6]"}
    assert len(rows_of) == 2, "only one lane had rows, which proves nothing"


def test_what_a_row_does_to_the_fitted_state_does_not_reach_the_next():
    source = FIT + "def evaluate(output):\n    seen.append('mine')\n    return len(seen)\n"
    assert {record.score for record in start(source, numbers(6)).results()} == {7}


def test_rows_that_share_state_share_the_fitted_one():
    source = FIT + "def evaluate(output):\n    seen.append('mine')\n    return len(seen)\n"
    found = start(source, numbers(4), isolation="evaluator", workers=1).results()
    assert [record.score for record in found] == [5, 6, 7, 8]


def test_rows_to_fit_on_are_taken_off_a_generator_and_put_back():
    taken = []

    def rows():
        for n in range(20):
            taken.append(n)
            yield {"output": n}

    run = start(SEEN, rows(), fit_rows=4)
    assert taken == [0, 1, 2, 3], "more was read than is fitted on"
    found = list(run.results())
    assert [record.score for record in found] == list(range(20))
    assert {record.label for record in found} == {"[0, 1, 2, 3]"}


def test_fit_gets_its_rows_and_no_more_however_many_are_scored():
    def rows():
        yield from numbers(3)
        raise AssertionError("a row was read that nobody asked for")

    found = list(start(SEEN, rows(), rows=2, fit_rows=3).results())
    assert [(record.score, record.label) for record in found] == [(n, "[0, 1, 2]") for n in range(2)]


def test_fit_rows_of_the_block_are_taken_and_a_flag_has_the_last_word():
    block = "# /// script\n# [tool.evalcell]\n# fit_rows = 2\n# ///\n"
    assert next(start(block + SEEN, numbers(5)).results()).label == "[0, 1]"
    assert next(start(block + SEEN, numbers(5), fit_rows=3).results()).label == "[0, 1, 2]"


def test_the_version_names_on_how_many_rows_it_was_fitted():
    versions = [start(SEEN, numbers(1), fit_rows=n).summary()["version"] for n in (1, 2, 2)]
    assert versions[0] != versions[1] == versions[2]


def test_fit_gets_what_is_bound_and_nothing_else():
    source = "def fit(rows):\n    global seen\n    seen = rows\ndef evaluate(answer, weight):\n    return {'label': str([sorted(row.items()) for row in seen])}\n"
    run = start(source, [{"said": "a", "secret": 1}], bind={"answer": "said"}, set={"weight": 2})
    assert next(run.results()).label == "[[('answer', 'a'), ('weight', 2)]]"


def test_rows_that_cannot_be_bound_are_left_out_of_fit_and_fail_on_their_own_turn(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"output": 1}\n{broken\n{"other": 2}\n{"output": 3}\n')
    found = list(start(SEEN, path).results())
    assert [record.status for record in found] == ["scored", "failed", "failed", "scored"]
    assert {record.label for record in found if record.status == "scored"} == {"[1, 3]"}


def test_fit_may_be_a_coroutine_and_take_more_parameters_with_defaults():
    source = "async def fit(rows, *, weight=2):\n    global total\n    total = weight * len(rows)\ndef evaluate(output): return total\n"
    assert next(start(source, numbers(3)).results()).score == 6


def test_a_fit_that_raises_ends_the_run_before_its_rows_with_its_own_sentence(tmp_path):
    source = "def fit(rows):\n    raise ValueError('no words')\n" + ECHO
    with pytest.raises(evalcell.EvaluatorError) as caught:
        start(source, numbers(3), out=tmp_path / "o.jsonl")
    assert str(caught.value) == "fit failed on the first 3 rows: ValueError: no words"
    assert caught.value.kind == "raised"
    assert 'evaluator.py", line 2, in fit' in caught.value.traceback
    assert list(tmp_path.iterdir()) == []


def test_a_fit_that_is_too_slow_names_its_own_limit_and_the_flags():
    source = "def fit(rows):\n    while True: pass\n" + ECHO
    with pytest.raises(evalcell.EvaluatorError, match="fit_seconds on the first 3 rows") as caught:
        start(source, numbers(3), limits={"fit_seconds": 0.5})
    assert caught.value.kind == "exceeded"
    assert "--limit fit_seconds=" in str(caught.value)
    assert "--fit-rows" in str(caught.value)


def test_a_fit_that_kills_its_interpreter_ends_the_run():
    with pytest.raises(evalcell.EvaluatorError, match="fit crashed on the first 3 rows") as caught:
        start("import os\ndef fit(rows):\n    os._exit(3)\n" + ECHO, numbers(3))
    assert caught.value.kind == "crashed"


def test_a_fit_error_counts_the_rows_that_were_left_out():
    source = "def fit(rows):\n    return 1 / len(rows)\n" + ECHO
    with pytest.raises(evalcell.EvaluatorError, match=r"2 rows \(2 of them could not be bound and were left out\)"), pytest.warns(UserWarning, match="first row"):  # fmt: skip
        start(source, [{"other": 1}, {"other": 2}])


@pytest.mark.parametrize(
    ("hook", "parameters"),
    [
        ("fit", ""),
        ("fit", "rows, other"),
        ("fit", "*, rows"),
        ("fit", "rows, *, other"),
        ("aggregate", ""),
        ("aggregate", "results, other"),
    ],
)
def test_a_hook_that_cannot_be_called_is_refused_by_its_line(hook, parameters):
    with pytest.raises(evalcell.EvaluatorError, match=f"Line 3: {hook} is called with one argument") as caught:
        start(ECHO + f"def {hook}({parameters}): pass\n", numbers(1))
    assert caught.value.kind == "signature"


@pytest.mark.parametrize("parameters", ["rows", "rows, /", "*rows", "rows, k=1", "rows, **more"])
def test_a_hook_that_can_be_called_is(parameters):
    assert next(start(ECHO + f"def fit({parameters}): pass\n", numbers(1)).results()).score == 0


def test_fit_rows_make_no_sense_without_a_fit():
    with pytest.raises(evalcell.UsageError, match="defines no fit"):
        start(ECHO, numbers(1), fit_rows=5)
    with pytest.raises(evalcell.EvaluatorError, match="sets fit_rows, but evaluator.py defines no fit"):
        start("# /// script\n# [tool.evalcell]\n# fit_rows = 2\n# ///\n" + ECHO, numbers(1))


@pytest.mark.parametrize("wrong", [0, -1, "5", 10**30])
def test_fit_rows_are_a_number_that_can_be(wrong):
    with pytest.raises(evalcell.UsageError, match="fit_rows"):
        start(SEEN, numbers(1), fit_rows=wrong)


def test_rows_that_cannot_be_read_so_far_end_the_run_before_it_is_fitted():
    def rows():
        yield {"output": 1}
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        start("def fit(rows):\n    raise ValueError('fitted on too few')\n" + ECHO, rows())


def test_rows_too_large_to_be_kept_are_refused_with_the_flag(monkeypatch):
    monkeypatch.setattr(fitting, "MOST_BYTES", 10_000)
    with pytest.raises(evalcell.DatasetError, match="Fit on fewer with --fit-rows"):
        start(SEEN, ({"output": "x" * 100} for _ in range(1_000)))
    assert len(list(start(SEEN, [{"output": "x" * 100}] * 200, fit_rows=20).results())) == 200


def test_arguments_that_are_more_than_the_sandbox_holds_are_not_sent_into_it(rows):
    """Bindings may repeat a row many times over: what is small in the dataset need not be so in the sandbox."""
    source = "def fit(rows): pass\ndef evaluate(a, b, c, d): return 1\n"
    items = [{"output": "x" * 2_000_000} for _ in range(10)]
    with pytest.raises(evalcell.EvaluatorError, match="the arguments of 9 rows alone") as caught:
        start(source, items, bind=dict.fromkeys("abcd", "output"), limits={"memory_bytes": 64 * 2**20})
    assert (caught.value.kind, "--fit-rows" in str(caught.value)) == ("exceeded", True)


def test_many_rows_reach_fit_whole_and_in_order():
    source = "def fit(rows):\n    global found\n    found = [row['output'] for row in rows] == list(range(2_500))\ndef evaluate(output): return found\n"
    run = start(source, numbers(3_000), fit_rows=2_500, isolation="evaluator", workers=1)
    found = list(run.results())
    assert {record.score for record in found} == {1.0}
    assert [record.row for record in found] == list(range(3_000))


def test_a_lane_that_dies_in_the_midst_of_the_rows_is_replaced_by_one_that_is_fitted():
    source = (
        FIT
        + "def evaluate(output):\n    for _ in range(50_000): pass\n    return {'score': output, 'label': str(seen)}\n"
    )
    run = start(source, numbers(60), fit_rows=3, workers=1)
    found = []
    for record in run.results():
        found.append(record)
        if record.row in (5, 20):
            os.kill(run._engine.lane_pids()[0], signal.SIGKILL)
    assert [(record.row, record.score, record.label) for record in found] == [(n, n, "[0, 1, 2]") for n in range(60)]


def test_a_lane_that_dies_while_it_is_fitted_is_replaced(kill_on):
    killed = kill_on(Fit, 2)
    assert next(start(SEEN, numbers(3)).results()).label == "[0, 1, 2]"
    assert len(set(killed)) == 2


def test_lanes_that_always_die_while_they_are_fitted_end_the_run_with_a_fault(kill_on):
    kill_on(Fit, 9)
    with pytest.raises(
        SandboxFault, match=r"die while they are fitted, 3 times in a row\. Fit on fewer .*--fit-rows N"
    ):
        start(SEEN, numbers(3))


def test_a_lane_that_falls_silent_while_it_is_fitted_is_replaced(kill_on, monkeypatch):
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.0)
    stopped = kill_on(Fit, 1, signal.SIGSTOP)
    limits = {"wall_seconds": 0.1, "load_seconds": 1, "fit_seconds": 1}
    assert next(start(SEEN, numbers(3), limits=limits).results()).label == "[0, 1, 2]"
    assert len(stopped) == 1


@pytest.mark.parametrize("hook", ["fit", "aggregate"])
def test_a_lane_may_be_silent_for_as_long_as_a_hook_may_take(monkeypatch, hook):
    started, start_lane, open_ = [], Pool.start, Engine.open

    def hurried(self, *arguments, **options):
        monkeypatch.setattr(pool, "GRACE_SECONDS", -1.5)  # from here on a lane is up, and a row has 0.7 seconds
        open_(self, *arguments, **options)

    monkeypatch.setattr(Engine, "open", hurried)
    monkeypatch.setattr(Pool, "start", lambda self: started.append(self) or start_lane(self))
    source = ECHO + f"def {hook}(rows):\n    for _ in range(120_000_000): pass\n    return 1\n"
    began = time.monotonic()
    run = start(source, numbers(1), limits={"wall_seconds": 0.2, "load_seconds": 1}, isolation="evaluator")
    assert run.wait()["aggregate_error"] is None
    assert time.monotonic() - began > 1.5, "too fast to prove anything"
    assert len(started) == 1


def test_a_further_lane_that_cannot_be_fitted_is_done_without(monkeypatch):
    real, lanes, refused = Pool._fitted, [], []

    def fitted(self, lane, message):
        lanes.append(lane)
        if len(lanes) > 1:
            refused.append(lane)
            message = Fitted(Raised(exception="ValueError", message="not here"), 0)
        real(self, lane, message)

    monkeypatch.setattr(Pool, "_fitted", fitted)
    source = FIT + "def evaluate(output):\n    for _ in range(200_000): pass\n    return {'label': str(seen)}\n"
    found = list(start(source, numbers(300), fit_rows=2, workers=2).results())
    assert {record.label for record in found} == {"[0, 1]"}
    assert len(refused) == 1


def test_rows_to_fit_on_are_waited_for(monkeypatch):
    monkeypatch.setattr(fitting, "_PATIENCE_SECONDS", 0.0)
    rows = [Row(0, 1, b"{}"), None, None, Row(1, 2, b"[1]"), None, Row(2, 3, b"{}")]
    told = []
    with fitting.FirstRows() as first:
        every = first.take(iter(rows), 2, told.append)
        assert first.count == 2
        assert [row for chunk in first.chunks() for row in chunk] == [rows[0], rows[3]]
        assert [row for row in every if row is not None] == [rows[0], rows[3], rows[5]]
    assert told == [1, 1, 1, 2]


@pytest.mark.parametrize("slow", ["fit", "rows"])
def test_a_task_that_is_cancelled_while_it_fits_ends_the_fit(monkeypatch, slow):
    """Where rows come slowly, it is not even begun."""
    sent, left, real, leave = [], [], LaneProcess.send, Engine.__exit__

    def send(process, message):
        sent.append(type(message))
        return real(process, message)

    monkeypatch.setattr(LaneProcess, "send", send)
    monkeypatch.setattr(Engine, "__exit__", lambda self, *why: left.append(time.monotonic()) or leave(self, *why))

    def data():
        yield from numbers(3)
        while slow == "rows":
            time.sleep(0.01)
            sent.append("row")
            yield {"output": 1}

    source = evalcell.Evaluator.from_source("def fit(rows):\n    while True: pass\n" + ECHO)
    left.clear()
    waited_for = Fit if slow == "fit" else "row"

    async def cancelled():
        task = asyncio.create_task(evalcell.arun(source, data(), limits={"fit_seconds": 20}, fit_rows=1_000))
        while waited_for not in sent:
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic()

    began = asyncio.run(cancelled())  # which waits for the thread
    assert left[0] - began < 3
    assert (Fit in sent) == (slow == "fit")
