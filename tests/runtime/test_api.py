"""evalcell from Python: runs, their results as records and tables, progress, cancelling, and asyncio."""

import asyncio
import contextlib
import gc
import json
import os
import threading
import time
import warnings
from pathlib import Path

import pytest

import evalcell
from evalcell.records import Record

EQUAL = "def evaluate(output, reference):\n    return output == reference\n"
ROWS = [{"output": n % 2, "reference": 1} for n in range(6)]


@pytest.fixture
def equal():
    return evalcell.Evaluator.from_source(EQUAL, name="equal")


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def lanes(run) -> list[int]:
    return run._engine.lane_pids()


def test_a_run_gives_typed_records_in_order(equal):
    with evalcell.run(equal, ROWS) as run:
        found = list(run.results())
    assert all(isinstance(record, Record) for record in found)
    assert [(record.row, record.name, record.score) for record in found] == [(n, "equal", n % 2) for n in range(6)]
    assert run.summary()["scores"]["equal"]["mean"] == 0.5
    assert run.progress().state == "finished"
    assert run.progress().fraction == 1.0


def test_a_path_is_enough(write, rows):
    run = evalcell.run(write("equal.py", EQUAL), rows(ROWS))
    assert [record.score for record in run.results()] == [0, 1] * 3


def test_results_are_taken_once_and_go_on_where_they_were_left(equal):
    run = evalcell.run(equal, ROWS)
    first = next(run.results()).row
    rest = [record.row for record in run.results()]
    assert [first, *rest] == list(range(6))
    assert list(run.results()) == []


def test_options_mean_what_the_flags_mean(write, tmp_path):
    (tmp_path / "d.csv").write_text("key;said;truth\na;1;1\nb;1;2\nc;2;2\n")
    source = "def evaluate(output, reference, weight):\n    return (output == reference) * weight\n"
    run = evalcell.run(
        write("e.py", source),
        tmp_path / "d.csv",
        bind={"output": "said", "reference": "truth"},
        set={"weight": 3},
        id="key",
        limits={"wall_seconds": 5},
        isolation="evaluator",
        workers=1,
        seed=7,
        rows=2,
        out=tmp_path / "o.jsonl",
    )
    assert [(record.id, record.score) for record in run.results()] == [("a", 3), ("b", 0)]
    summary = run.summary()
    assert (summary["isolation"], summary["seed"], summary["rows"]) == ("evaluator", 7, 2)
    assert [json.loads(line)["id"] for line in (tmp_path / "o.jsonl").read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"isolation": "none"}, "isolation is one of 'row', 'evaluator', not 'none'"),
        ({"format": "xml"}, "format is one of"),
        ({"rows": 0}, "rows is a whole number from 1 on"),
        ({"rows": "3"}, "rows is a whole number from 1 on"),
        ({"fit_rows": True}, "fit_rows is a whole number from 1 on, not True"),
        ({"fit_rows": 2.0}, "fit_rows is a whole number from 1 on"),
        ({"seed": True}, "seed is a whole number from 0"),
        ({"workers": 0}, "workers is a whole number from 1 on"),
        ({"seed": -1}, "seed is a whole number from 0"),
        ({"seed": 2**70}, "seed is a whole number from 0"),
        ({"seed": 1.5}, "seed is a whole number from 0"),
        ({"id": 5}, "id is text"),
        ({"sandbox": 5}, "sandbox is text"),
        ({"bind": "output=x"}, "bind is a dict"),
        ({"bind": {"output": 5}}, "bind holds 'output': 5"),
        ({"limits": {"wall_seconds": "2"}}, "limits holds 'wall_seconds'"),
        ({"set": {"output": object()}}, "set holds a value that JSON cannot"),
        ({"set": {"output": "\ud800"}}, "set holds a value that JSON cannot"),
        ({"out": ""}, "names no file"),
        ({"limits": {"wall": 1}}, "There is no limit 'wall'"),
        ({"bind": {"ouput": "x"}}, "Did you mean 'output'"),
        ({"sandbox": "wasn"}, "Did you mean 'wasm'"),
        ({"out": "no/such/directory/o.jsonl"}, "there is no directory"),
    ],
)
def test_a_wrong_option_is_an_error_at_once(equal, options, message):
    with pytest.raises(evalcell.UsageError, match=message):
        evalcell.run(equal, ROWS, **options)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def evaluate(:", "syntax"),
        ("def score(output): pass", "signature"),
        ("1/0\ndef evaluate(output): 0", "raised"),
    ],
)
def test_an_evaluator_that_cannot_run_is_an_error_before_the_first_row(source, kind):
    with pytest.raises(evalcell.EvaluatorError) as caught:
        evalcell.run(evalcell.Evaluator.from_source(source), ROWS)
    assert caught.value.kind == kind


@pytest.mark.parametrize(("text", "name"), [(b"def evaluate(output): pass", "e"), ("x", 5)])
def test_a_source_is_text(text, name):
    with pytest.raises(evalcell.UsageError, match="is text"):
        evalcell.Evaluator.from_source(text, name=name)


def test_a_source_may_begin_with_a_byte_order_mark_but_not_hold_what_is_no_text():
    assert next(evalcell.run(evalcell.Evaluator.from_source("\ufeff" + EQUAL), ROWS).results()).score == 0
    with pytest.raises(evalcell.UsageError, match="lone surrogate at character 4"):
        evalcell.Evaluator.from_source("x = \ud800")


def test_a_language_that_is_not_spoken_is_named():
    with pytest.raises(evalcell.UsageError, match="'python', 'typescript', not in 'cobol'"):
        evalcell.Evaluator.from_source("x", language="cobol")


def test_a_dataset_without_rows_is_an_error(equal):
    with pytest.raises(evalcell.DatasetError, match="no rows"):
        evalcell.run(equal, [])


def test_a_row_that_is_no_object_fails_alone_unless_strict(equal):
    data = [ROWS[0], object(), ROWS[1]]
    assert [record.status for record in evalcell.run(equal, data).results()] == ["scored", "failed", "scored"]
    with pytest.raises(evalcell.DatasetError, match="row 1 cannot be written as JSON"):
        list(evalcell.run(equal, data, strict=True).results())


def test_a_binding_that_finds_nothing_in_the_first_row_warns(equal):
    with pytest.warns(UserWarning, match="'output'.*does not have") as caught:
        run = evalcell.run(equal, [{"reference": 1}])
    assert caught[0].filename == __file__, "it points at the line that called us"
    assert next(run.results()).error.kind == "binding"


# -- tables -----------------------------------------------------------------------------------------------------------
MIXED = """
def evaluate(output):
    if output == 0:
        raise ValueError("zero")
    if output == 1:
        return {"score": None}
    return [{"name": "a", "score": 0.5, "metadata": {"deep": [1]}}, {"name": "b", "label": "good", "passed": True}]
"""


def mixed_run():
    return evalcell.run(evalcell.Evaluator.from_source(MIXED), [{"output": n, "id": n or "zero"} for n in range(3)])


def test_results_as_an_arrow_table():
    table = mixed_run().to_arrow()
    assert table.column_names == list(Record.__struct_fields__)
    found = table.to_pylist()
    assert [row["status"] for row in found] == ["failed", "skipped", "scored", "scored"]
    assert [row["id"] for row in found] == ["zero", "1", "2", "2"]
    assert found[0]["error"]["kind"] == "raised"
    assert json.loads(found[2]["metadata"]) == {"deep": [1]}
    assert found[3]["passed"] is True
    assert found[2]["usage"]["wall_seconds"] > 0


def test_tables_have_one_schema_whatever_is_in_them(equal):
    run = evalcell.run(equal, ROWS)
    run.wait()
    empty = run.to_arrow()
    assert empty.num_rows == 0
    assert empty.schema == mixed_run().to_arrow().schema


def test_results_as_data_frames():
    assert mixed_run().to_pandas()["score"].isna().tolist() == [True, True, False, True]
    assert mixed_run().to_polars()["score"].to_list() == [None, None, 0.5, None]


def test_a_missing_library_says_how_to_get_it(equal, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    run = evalcell.run(equal, ROWS)
    with pytest.raises(evalcell.UsageError, match="pip install polars"):
        run.to_polars()
    assert len(list(run.results())) == 6, "nothing was taken by the call that failed"


# -- progress and cancelling ------------------------------------------------------------------------------------------
HANGS = "def evaluate(output):\n    while output: pass\n    return 0.5\n"


def hanging(count: int = 400, **options):
    """Rows of which all but the first ten hang."""
    rows = [{"output": n >= 10} for n in range(count)]
    evaluator = evalcell.Evaluator.from_source(HANGS)
    return evalcell.run(evaluator, rows, limits={"wall_seconds": 60}, **options)


def test_progress_can_be_watched_from_another_thread():
    seen = []
    run = hanging(20)
    taker = threading.Thread(target=lambda: [seen.append(record) for record in run.results()])
    taker.start()
    deadline = time.monotonic() + 30
    while run.progress().rows < 10 and time.monotonic() < deadline:
        time.sleep(0.02)
    progress = run.progress()
    assert (progress.state, progress.rows, progress.failed, progress.fraction) == ("running", 10, 0, 0.5)
    run.cancel()
    taker.join(10)
    assert not taker.is_alive()
    assert len(seen) == 10
    assert run.progress().state == "cancelled"


def test_cancelling_kills_every_lane_and_keeps_what_was_written(tmp_path):
    run = hanging(out=tmp_path / "o.jsonl", workers=2)
    taken = [record.row for record, _ in zip(run.results(), range(5), strict=False)]
    pids = lanes(run)
    assert pids
    run.cancel()
    assert not any(alive(pid) for pid in pids)
    assert not (tmp_path / "o.jsonl").exists()
    assert len((tmp_path / "o.jsonl.partial").read_text().splitlines()) >= len(taken)
    run.cancel()
    assert run.progress().state == "cancelled"


def test_results_end_where_the_run_is_cancelled(equal):
    run = evalcell.run(equal, ROWS * 1_000, isolation="evaluator")
    seen = 0
    for record in run.results():
        seen += 1
        if record.row == 3_000:
            run.cancel()
    assert seen == 3_001


def test_two_runs_do_not_write_one_file(equal, tmp_path):
    with evalcell.run(equal, ROWS * 200, out=tmp_path / "o.jsonl") as first:
        next(first.results())
        with pytest.raises(evalcell.OutputError, match="being written by another run"):
            evalcell.run(equal, ROWS, out=tmp_path / "o.jsonl")
        assert sum(1 for _ in first.results()) == 1_199
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 1_200
    evalcell.run(equal, ROWS, out=tmp_path / "o.jsonl").wait()
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 6


def test_rows_before_an_error_of_the_users_own_generator_are_scored(equal):
    def rows():
        yield from ROWS
        raise ZeroDivisionError

    run = evalcell.run(equal, rows())
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(record.row for record in run.results())
    assert seen == list(range(6))


def test_results_come_before_more_rows_are_asked_for(equal):
    """A source that is slow holds up what comes after it, not what is done."""
    taken = 0

    def rows():
        for _ in range(6):
            yield {"output": 1, "reference": 1}
            time.sleep(0.5)

    with evalcell.run(equal, rows()) as run:
        started = time.monotonic()
        for record in run.results():
            taken += 1
            if record.row == 2:
                break
    assert taken == 3
    assert time.monotonic() - started < 2.6


def test_a_forked_process_leaves_the_run_of_its_parent_alone(equal):
    with evalcell.run(equal, ROWS * 100) as run:
        next(run.results())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads, which pytest has
            child = os.fork()
        if not child:
            with contextlib.suppress(BaseException):
                del run
                gc.collect()
            os._exit(7)
        deadline = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ended[1] >> 8 == 7, "the child hangs"
        assert sum(1 for _ in run.results()) == 599


def test_progress_counts_time_from_the_first_row_and_while_it_waits(equal):
    run = hanging(20)
    time.sleep(0.5)
    assert run.progress().seconds == 0
    taker = threading.Thread(target=lambda: list(run.results()))
    taker.start()
    time.sleep(1)
    assert 0.5 < run.progress().seconds < 30
    run.cancel()
    taker.join(10)


def test_leaving_the_context_early_ends_the_run(tmp_path):
    with hanging(out=tmp_path / "o.jsonl") as run:
        next(run.results())
        pids = lanes(run)
    assert not any(alive(pid) for pid in pids)
    assert not (tmp_path / "o.jsonl").exists()


def test_an_error_in_the_loop_over_results_is_told_where_the_records_are(tmp_path):
    def take():
        with hanging(out=tmp_path / "o.jsonl") as run:
            next(run.results())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        take()
    assert "o.jsonl.partial" in caught.value.__notes__[0]


def test_a_run_that_nobody_holds_any_more_leaves_no_process():
    run = hanging()
    next(run.results())
    pids = lanes(run)
    del run
    gc.collect()
    assert not any(alive(pid) for pid in pids)


# -- asyncio ----------------------------------------------------------------------------------------------------------
def test_results_for_asyncio_while_other_tasks_go_on(equal):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.005)

        ticking = asyncio.create_task(tick())
        async with await evalcell.arun(equal, ROWS) as run:
            found = [record.score async for record in run.results()]
        ticking.cancel()
        return found, ticks, run.progress().state, run.summary()["rows"]

    found, ticks, state, rows = asyncio.run(main())
    assert found == [0, 1] * 3
    assert ticks > 5
    assert (state, rows) == ("finished", 6)


def test_cancelling_a_task_cancels_its_run():
    async def main():
        pids = []

        async def take():
            evaluator = evalcell.Evaluator.from_source(HANGS)
            data = [{"output": n >= 10} for n in range(40)]
            async with await evalcell.arun(evaluator, data, limits={"wall_seconds": 60}) as run:
                pids.extend(lanes(run._run))
                async for _ in run.results():
                    pass

        task = asyncio.create_task(take())
        while not pids:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids

    assert not any(alive(pid) for pid in asyncio.run(main()))


def test_a_task_cancelled_while_its_run_starts_leaves_nothing(equal, caplog):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await evalcell.arun(equal, ROWS)
        await asyncio.sleep(1.5)

    asyncio.run(main())
    gc.collect()
    assert not caplog.records
    assert Path(f"/proc/self/task/{os.getpid()}/children").read_text().split() == []


def test_two_runs_at_a_time_in_one_event_loop(equal):
    async def one():
        async with await evalcell.arun(equal, ROWS, workers=1) as run:
            return await run.wait()

    async def main():
        return await asyncio.gather(one(), one())

    assert [summary["rows"] for summary in asyncio.run(main())] == [6, 6]


def test_arun_takes_what_run_takes():
    import inspect

    assert list(inspect.signature(evalcell.arun).parameters) == list(inspect.signature(evalcell.run).parameters)


def test_a_slow_reader_slows_the_lanes_instead_of_filling_memory(equal):
    """Rows are read a bounded distance ahead of the results that were taken."""
    read = 0

    def rows():
        nonlocal read
        for _ in range(100_000):
            read += 1
            yield {"output": 1, "reference": 1}

    with evalcell.run(equal, rows(), workers=1, isolation="evaluator") as run:
        results = run.results()
        for _ in range(2_000):
            next(results)
        time.sleep(0.3)
        assert read < 20_000


def test_public_names_are_these():
    expected = """AsyncRun DatasetError Error EvalcellError Evaluator EvaluatorError OutputError Record Run RunProgress
    UsageError __version__ arun run"""
    assert sorted(evalcell.__all__) == sorted(expected.split())
    for name in evalcell.__all__:
        assert getattr(evalcell, name) is not None
    assert (Path(evalcell.__file__).parent / "py.typed").exists()
