"""`aggregate` after the rows, in real lanes and the real sandbox."""

import asyncio
import json
import os
import signal
from types import SimpleNamespace

import pytest
from hooking import ECHO, FIT, SEEN, numbers, start

import evalcell
from evalcell.aggregating import aggregates_of
from evalcell.engine.engine import Engine
from evalcell.engine.hooks import Aggregating
from evalcell.engine.process import LaneProcess
from evalcell.engine.protocol import Aggregate
from evalcell.spool import Spool
from evalcell_sandboxes import Exceeded, Returned


def aggregated(source, items=None, **options):
    """The aggregates of a run and their error, which has all its records whatever `aggregate` does."""
    items = numbers(3) if items is None else items
    run = start(source, items, **options)
    assert len(list(run.results())) == len(items)
    assert run.progress().state == "finished"
    summary = run.summary()
    json.dumps(summary, allow_nan=False)
    return summary["aggregates"], summary["aggregate_error"]


SPELLED = """
import json
def aggregate(results):
    return {json.dumps([r[k] for k in ("row", "id", "name", "score", "label", "metadata")]): n for n, r in enumerate(results)}
"""


def test_aggregate_gets_every_score_in_the_order_of_the_rows():
    source = ECHO.replace("return", "for _ in range((output * 7) % 5 * 100_000): pass\n    return") + SPELLED
    numbers_, error = aggregated(source, numbers(60), workers=2)
    assert error is None
    assert [json.loads(name)[:2] for name in numbers_] == [[n, n] for n in range(60)]
    assert list(numbers_.values()) == list(range(60))


def test_aggregate_gets_row_id_name_score_label_and_metadata_and_nothing_else():
    source = (
        "def evaluate(output):\n    return {'a': {'score': 0.5, 'label': 'half', 'explanation': 'x', 'k': [1]}, 'b': output}\n"
        + SPELLED.replace("return {", "assert {len(r) for r in results} == {6}\n    return {")
    )
    run = start(source, [{"output": 7, "id": "x"}])
    run.wait()
    assert [json.loads(name) for name in run.summary()["aggregates"]] == [
        [0, "x", "a", 0.5, "half", {"k": [1]}],
        [0, "x", "b", 7.0, None, None],
    ]


def test_failed_and_skipped_rows_are_not_aggregated():
    source = (
        "def evaluate(output):\n"
        "    if output == 1: raise ValueError('no')\n"
        "    return {'score': None} if output == 2 else output\n"
        "def aggregate(results):\n    return {str(r['row']): r['score'] for r in results}\n"
    )
    assert aggregated(source, numbers(5)) == ({"0": 0, "3": 3, "4": 4}, None)


def test_aggregate_is_not_called_when_nothing_was_scored():
    source = (
        "def evaluate(output):\n    return {'score': None}\ndef aggregate(results):\n    raise ValueError('called')\n"
    )
    assert aggregated(source) == ({}, None)


def test_aggregate_starts_from_the_state_after_fit_and_from_nothing_that_rows_did():
    source = FIT + (
        "def evaluate(output):\n    seen.append('mine')\n    return 1\n"
        "def aggregate(results):\n    return {'seen': len(seen), 'results': len(results)}\n"
    )
    for isolation in ("row", "evaluator"):
        assert aggregated(source, fit_rows=2, isolation=isolation) == ({"seen": 2, "results": 3}, None)


def test_a_run_without_the_hook_has_no_aggregates():
    assert aggregated(ECHO) == ({}, None)


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("0.25", {"evaluator": 0.25}),
        ("{'a': 1, 'b': 0.5, 'c': True, 'd': None}", {"a": 1, "b": 0.5, "c": 1, "d": None}),
        ("{}", {}),
        ("{'big': 2**70}", {"big": float(2**70)}),
        ("{'a' * 200: 1}", {"a" * 200: 1}),
    ],
)
def test_numbers_come_back_as_they_are(value, numbers):
    assert aggregated(ECHO + f"def aggregate(results):\n    return {value}\n") == (numbers, None)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("None", "aggregate returned nothing: did you forget return"),
        ("'good'", "aggregate returned 'good'; return a number"),
        ("[1, 2]", "aggregate returned [1, 2]; return a number"),
        ("{'f1': 'high'}", "aggregate returned 'high' as 'f1'"),
        ("{'f1': {'macro': 1}}", "aggregate returned {'macro': 1} as 'f1'"),
        ("{'f1': float('nan')}", "aggregate returned NaN at 'f1'; return None (null) for a number that is undefined"),
        ("{'f1': 10**400}", "too large for a float"),
        ("{str(n): n for n in range(101)}", "aggregate returned 101 numbers; 100 are allowed"),
        ("{'x' * 201: 1}", "a name of 201 characters"),
        ("{1, 2}", "aggregate returned a value of type set"),
        ("{'\\ud800': 1}", "lone surrogate"),
    ],
)
def test_what_is_no_number_is_refused_and_costs_no_record(value, message):
    found, error = aggregated(ECHO + f"def aggregate(results):\n    return {value}\n")
    assert found == {}
    assert error["kind"] == "invalid_result"
    assert message in error["message"]


@pytest.mark.parametrize(
    "forged",
    [
        "'[' * 50_000 + ']' * 50_000",
        "'{\"a\":' * 50_000 + '1' + '}' * 50_000",
        "'[' * 50_000",
        "'{\"a\": 1e999}'",
        "'{\"a\": NaN}'",
        "'{\"\\\\ud800\": 1}'",
        "'{\"a\": ' + '9' * 500_000 + '}'",
        "'not json'",
        '\'null}, "kind": "returned"\'',
    ],
)
def test_a_forged_result_is_refused_and_costs_no_record(forged):
    source = (
        f"def aggregate(results):\n    import sys\n    sys.modules['results'].encoded = lambda *_: {forged}\n" + ECHO
    )
    found, error = aggregated(source)
    assert found == {}
    assert error["kind"] == "invalid_result"
    assert len(error["message"]) < 1_000


def test_an_aggregate_that_raises_is_an_error_of_its_own_and_the_file_is_whole(tmp_path):
    out = tmp_path / "o.jsonl"
    found, error = aggregated(ECHO + "def aggregate(results):\n    raise ValueError('no mean')\n", out=out)
    assert (found, error["kind"], error["message"], error["limit"]) == ({}, "raised", "ValueError: no mean", None)
    assert 'evaluator.py", line 4, in aggregate' in error["traceback"]
    assert len(out.read_text().splitlines()) == 3


def test_an_aggregate_that_is_too_slow_names_its_own_limit():
    source = ECHO + "def aggregate(results):\n    while True: pass\n"
    _, error = aggregated(source, limits={"aggregate_seconds": 0.5})
    assert (error["kind"], error["limit"]) == ("exceeded", "aggregate_seconds")
    assert "--limit aggregate_seconds=" in error["message"]


def test_an_aggregate_that_kills_its_interpreter_is_an_error():
    assert aggregated(ECHO + "import os\ndef aggregate(results):\n    os._exit(3)\n")[1]["kind"] == "crashed"


def test_results_that_are_more_than_the_sandbox_holds_are_an_error_and_cost_no_row():
    source = (
        "def evaluate(output):\n    return {'score': 1, 'k': 'x' * 900_000}\ndef aggregate(results):\n    return 1\n"
    )
    found, error = aggregated(source, numbers(90), isolation="evaluator", limits={"memory_bytes": 64 * 2**20})
    assert (found, error["kind"], error["limit"]) == ({}, "exceeded", "memory_bytes")


def test_the_file_of_records_is_whole_before_they_are_aggregated(tmp_path, monkeypatch):
    out = tmp_path / "o.jsonl"

    def interrupted(self, pieces):
        assert len(out.read_text().splitlines()) == 3
        raise KeyboardInterrupt

    monkeypatch.setattr(Engine, "aggregate", interrupted)
    run = start(ECHO + "def aggregate(results):\n    return 1\n", numbers(3), out=out)
    with pytest.raises(KeyboardInterrupt):
        list(run.results())
    assert run.progress().state == "failed"
    assert [path.name for path in tmp_path.iterdir()] == ["o.jsonl"]


def test_a_lane_that_dies_over_aggregate_is_replaced(kill_on):
    killed = kill_on(Aggregate, 2)
    assert aggregated(FIT + ECHO + "def aggregate(results):\n    return len(seen)\n") == ({"evaluator": 3}, None)
    assert len(set(killed)) == 2


def test_lanes_that_always_die_over_aggregate_are_an_error_and_cost_no_record(kill_on):
    kill_on(Aggregate, 9)
    found, error = aggregated(ECHO + "def aggregate(results):\n    return 1\n")
    assert (found, error["kind"]) == ({}, "crashed")
    assert error["message"] == "the worker process died on aggregate, 3 times"


def test_lanes_that_cannot_be_had_any_more_are_an_error_and_cost_no_record(kill_on, monkeypatch):
    kill_on(Aggregate, 9)
    run = start(ECHO + "def aggregate(results):\n    return 1\n", numbers(3))
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert len(list(run.results())) == 3
    assert run.summary()["aggregate_error"]["kind"] == "infrastructure"


def test_a_run_that_is_cancelled_while_it_aggregates_ends_at_once_with_its_file(tmp_path, monkeypatch):
    run = start(ECHO + "def aggregate(results):\n    while True: pass\n", numbers(3), out=tmp_path / "o.jsonl")
    real = LaneProcess.send

    def send(process, message):
        if isinstance(message, Aggregate):
            run.cancel()
        return real(process, message)

    monkeypatch.setattr(LaneProcess, "send", send)
    assert len(list(run.results())) == 3
    assert run.progress().state == "cancelled"
    assert (run.summary()["aggregates"], run.summary()["aggregate_error"]) == ({}, None)
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 3


def test_a_run_that_is_cancelled_before_its_end_aggregates_nothing():
    run = start(ECHO + "def aggregate(results):\n    return 1\n", numbers(500))
    next(run.results())
    run.cancel()
    assert run.summary()["aggregates"] == {}


def test_what_aggregate_was_told_does_not_depend_on_a_lane_that_died():
    source = "def evaluate(output):\n    for _ in range(50_000): pass\n    return output\ndef aggregate(results):\n    return {'n': len(results), 'sum': sum(r['score'] for r in results)}\n"
    run = start(source, numbers(60), workers=1)
    for record in run.results():
        if record.row in (5, 20):
            os.kill(run._engine.lane_pids()[0], signal.SIGKILL)
    assert run.summary()["aggregates"] == {"n": 60, "sum": sum(range(60))}


def test_hooks_are_called_for_asyncio_too():
    async def run():
        source = evalcell.Evaluator.from_source(SEEN + "def aggregate(results): return len(seen)\n")
        async with await evalcell.arun(source, numbers(5), fit_rows=2) as running:
            return [record.label async for record in running.results()], running.summary()["aggregates"]

    assert asyncio.run(run()) == (["[0, 1]"] * 5, {"evaluator": 2})


@pytest.mark.parametrize("value", [b"", b"{", b"[1]", b'{"a": "x"}', b"1e400", b"\xff", b'"\xff"', b"{" * 200])
def test_any_bytes_are_numbers_or_an_error(value):
    assert aggregates_of(Returned(value=value), "e").error.kind == "invalid_result"


def test_a_limit_without_a_flag_names_none():
    error = aggregates_of(Exceeded(limit="stack", message="too deep"), "e").error
    assert (error.message, error.limit) == ("too deep", "stack")


def test_a_full_disk_while_results_are_kept_is_an_error_of_aggregate_alone(monkeypatch):
    def full(spool, piece):
        raise evalcell.OutputError("A temporary file cannot be written: No space left on device.")

    monkeypatch.setattr(Spool, "append", full)
    found, error = aggregated(ECHO + "def aggregate(results):\n    return 1\n")
    assert (found, error["kind"]) == ({}, "infrastructure")
    assert "No space left" in error["message"]


def test_a_lane_lets_go_of_what_it_was_sent_before_aggregate_has_its_own_copy():
    class Watching:
        def aggregate(self, results):
            assert results == b"[1,2]"
            return Returned(value=b"%d" % len(aggregating._parts))

    aggregating = Aggregating(SimpleNamespace(evaluator="e"))
    aggregating.add(b"1")
    aggregating.add(b"2")
    assert aggregating.aggregate(Watching()).numbers == {"e": 0}
