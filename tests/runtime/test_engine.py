"""The engine with real lanes and the real sandbox: order, retries, bounds, and death at any time."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from evalcell import datasets, records
from evalcell.configuration import Operator
from evalcell.errors import EvaluatorError
from evalcell.evaluator import Evaluator
from evalcell.running import ready
from evalcell_sandboxes import Isolation, SandboxFault

ECHO = "def evaluate(output): return output\n"


def test_rows_come_back_in_order_whatever_their_pace(score):
    source = "import time\ndef evaluate(output):\n    for _ in range(output * 30_000): pass\n    return output\n"
    items = [{"output": (7 * n) % 11} for n in range(60)]
    scored = score(source, items, lanes=2)
    assert [record.row for record in scored.records] == list(range(60))
    assert [record.score for record in scored.records] == [item["output"] for item in items]


def test_one_lane_and_several_give_the_same_records(score):
    source = (
        "import random, os\ndef evaluate(output): return {'score': random.random(), 'label': os.urandom(8).hex()}\n"
    )
    items = [{"output": n} for n in range(40)]
    one, several = score(source, items, lanes=1), score(source, items, lanes=3)
    assert [(r.score, r.label) for r in one.records] == [(r.score, r.label) for r in several.records]


def test_every_kind_of_failure_is_a_record_of_its_row_alone(score):
    source = (
        "import os\ndef evaluate(output, reference):\n"
        "    if output == 'raise': raise ValueError('no')\n"
        "    if output == 'loop':\n        while True: pass\n"
        "    if output == 'exit': os._exit(3)\n"
        "    if output == 'none': return None\n"
        "    if output == 'skip': return {'score': None}\n"
        "    return 1.0\n"
    )
    items = [{"output": o, "reference": 1} for o in ("a", "raise", "b", "loop", "exit", "none", "skip", "c")]
    items += [{"output": "d"}, "{broken", "[1, 2]", '"text"', {"output": "e", "reference": None}]
    scored = score(source, items, limits={"wall_seconds": 0.5})
    kinds = [record.error.kind if record.error else record.status for record in scored.records]
    assert kinds == [
        "scored",
        "raised",
        "scored",
        "exceeded",
        "crashed",
        "invalid_result",
        "skipped",
        "scored",
        "binding",
        "binding",
        "binding",
        "binding",
        "scored",
    ]
    assert scored[1].error.message == "ValueError: no"
    assert "evaluator.py" in scored[1].error.traceback
    assert scored[3].error.limit == "wall_seconds"
    assert "line 10" in scored[9].error.message
    assert "did you forget return" in scored[5].error.message
    assert all(record.score is None for record in scored.records if record.status != "scored")


def test_a_row_is_known_by_its_id_field_else_its_index(score):
    scored = score(
        ECHO, [{"output": 1, "id": "x"}, {"output": 2}, {"output": 3, "id": 7}, {"output": 4, "id": {"odd": 1}}]
    )
    assert [record.id for record in scored.records] == ["x", 1, 7, 3]


def test_several_named_scores_make_several_records(score):
    scored = score("def evaluate(output): return {'a': 0.5, 'b': {'score': 1, 'label': 'x'}}\n", [{"output": 1}])
    assert [(record.name, record.score, record.label) for record in scored.records] == [
        ("a", 0.5, None),
        ("b", 1.0, "x"),
    ]


def test_a_module_that_cannot_be_loaded_ends_the_run_once(engine_for):
    with pytest.raises(EvaluatorError, match="ZeroDivisionError") as caught:
        engine_for("x = 1 / 0\n" + ECHO)
    assert caught.value.kind == "raised"
    assert "line 1, in <module>" in caught.value.traceback


def test_a_module_that_hangs_while_loading_ends_the_run_once(engine_for):
    with pytest.raises(EvaluatorError, match="load_seconds") as caught:
        engine_for("while True: pass\n" + ECHO, limits={"load_seconds": 0.5})
    assert caught.value.kind == "exceeded"


def _kill_lanes_busy_on(engine, seconds, times):
    """Kills a lane `times` times, each time after it has been busy that long."""

    def killer():
        for _ in range(times):
            time.sleep(seconds)
            for pid in engine.lane_pids()[:1]:
                os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    return thread


def _cpu_seconds(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _run(made, path):
    with datasets.opened(str(path)) as dataset:
        return [records.decode(line) for f in made.engine.run(dataset) for text in f.rows for line in text.splitlines()]


def test_a_killed_lane_loses_no_row_and_repeats_none(engine_for, rows):
    made = engine_for("def evaluate(output):\n    for _ in range(100_000): pass\n    return output\n", lanes=2)
    path = rows([{"output": n} for n in range(300)])
    # A row whose lane dies a third time is `crashed`, and on a slow machine every kill may meet the same row.
    killer = _kill_lanes_busy_on(made.engine, 0.4, 2)
    found = _run(made, path)
    killer.join()
    assert [record.row for record in found] == list(range(300))
    assert [record.score for record in found] == list(range(300))


def test_a_row_that_kills_every_lane_it_meets_is_crashed_and_the_others_are_scored(engine_for, rows):
    made = engine_for(
        "def evaluate(output):\n    while output == 50: pass\n    return output\n", limits={"wall_seconds": 60}
    )
    path = rows([{"output": n} for n in range(100)])
    stop = threading.Event()

    def kill_what_hangs():
        # A lane that has used so much processor time since it was first looked at hangs on the poison row.
        used: dict[int, float] = {}
        while not stop.wait(0.2):
            for pid in made.engine.lane_pids():
                now = _cpu_seconds(pid)
                if now - used.setdefault(pid, now) > 1.0:
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_what_hangs, daemon=True)
    killer.start()
    found = _run(made, path)
    stop.set()
    killer.join()
    assert [record.row for record in found] == list(range(100))
    assert [record.row for record in found if record.status == "failed"] == [50]
    assert found[50].error.kind == "crashed"


def test_a_lane_that_dies_before_it_is_ready_is_replaced(write, rows):
    with ready(Evaluator.from_source(ECHO), Operator(), started_ns=0) as made:
        (pid,) = made.engine.lane_pids()
        os.kill(pid, signal.SIGKILL)
        made.engine.open(made.planned.plan)
        assert [record.score for record in _run(made, rows([{"output": 1}, {"output": 2}]))] == [1, 2]


def test_lanes_that_never_get_ready_end_the_run_with_a_fault(write, rows, monkeypatch):
    with ready(Evaluator.from_source(ECHO), Operator(), started_ns=0) as made:
        os.kill(made.engine.lane_pids()[0], signal.SIGKILL)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(SandboxFault, match="3 times in a row"):
            made.engine.open(made.planned.plan)


def test_leaving_the_engine_leaves_no_process(engine_for, rows):
    made = engine_for("def evaluate(output):\n    while True: pass\n", lanes=2, limits={"wall_seconds": 60})
    with datasets.opened(str(rows([{"output": n} for n in range(10)]))) as dataset:
        running = made.engine.run(dataset)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have us ignore it
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            next(running)
        signal.signal(signal.SIGINT, before)
    pids = made.engine.lane_pids()
    made.engine.__exit__(None, None, None)
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads a process's environment from /proc")
def test_a_lane_holds_nothing_of_the_users_environment(engine_for, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    made = engine_for(ECHO)
    (pid,) = made.engine.lane_pids()
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"hunter2" not in environment
    assert {item.partition(b"=")[0] for item in environment.split(b"\0") if item} <= {b"PATH", b"LC_CTYPE"}


def test_large_results_do_not_pile_up_behind_a_slow_row(score):
    source = "def evaluate(output):\n    if output == 0:\n        for _ in range(5_000_000): pass\n    return {'score': 1, 'explanation': 'x' * 400_000}\n"
    scored = score(source, [{"output": n} for n in range(120)], lanes=2, isolation=Isolation.EVALUATOR)
    assert [record.row for record in scored.records] == list(range(120))


def test_an_empty_line_of_rows_ends_at_once(engine_for, rows):
    assert _run(engine_for(ECHO), rows([])) == []


def test_every_row_of_a_run_starts_fresh_wherever_batches_begin(score):
    source = "seen = []\ndef evaluate(output):\n    seen.append(output)\n    return len(seen)\n"
    found = score(source, [{"output": n} for n in range(300)], lanes=2)
    assert {record.score for record in found.records} == {1}


@pytest.mark.parametrize("linked", [False, True], ids=["plain", "through-a-link"])
def test_a_lane_imports_nothing_from_beside_the_users_program(tmp_path, linked):
    """An evaluator that lies there may be named like a module that only lanes import."""
    place = tmp_path / "project"
    place.mkdir()
    (place / "wasmtime.py").write_text(f"open({str(tmp_path / 'planted')!r}, 'w')\n")
    (place / "program.py").write_text(
        "import evalcell\n"
        "evaluator = evalcell.Evaluator.from_source('def evaluate(output): return output')\n"
        "print([record.score for record in evalcell.run(evaluator, [{'output': 3}]).results()])\n"
    )
    (tmp_path / "link").symlink_to(place)
    environment = {**os.environ, **({"PYTHONPATH": str(tmp_path / "link")} if linked else {})}
    done = subprocess.run(
        [sys.executable, str(place / "program.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.strip() == "[3.0]", done.stderr
    assert not (tmp_path / "planted").exists()
