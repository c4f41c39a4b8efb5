"""What happens around the sandbox at the worst moments: killed workers, interrupts, and hundreds of runs in one process."""

import contextlib
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

import evalcell
from evalcell.engine import engine
from evalcell.engine.engine import Engine
from evalcell.engine.pool import MOST_FAILED_STARTS
from evalcell.engine.process import LaneProcess
from evalcell.engine.protocol import Faulted, Open, Opened
from evalcell_sandboxes import SandboxFault
from evalcell_sandboxes.caching import cache_dir

pytestmark = pytest.mark.soak

ECHO = "def evaluate(output):\n    return output\n"


@pytest.mark.parametrize("isolation", ["row", "evaluator"])
def test_lanes_killed_at_random_lose_no_row_and_repeat_none(repeats, isolation):
    evaluator = evalcell.Evaluator.from_source(ECHO)
    count = 6_000 if isolation == "row" else 40_000
    killed = 0
    for attempt in repeats(4, 50):
        chance = random.Random(attempt)
        with evalcell.run(evaluator, [{"output": n} for n in range(count)], workers=2, isolation=isolation) as run:
            killer = threading.Thread(target=_kill_a_lane, args=(run, chance.uniform(0, 0.6)))
            killer.start()
            found = [(record.row, record.score) for record in run.results()]
            killer.join()
        assert found == [(n, n) for n in range(count)], f"attempt {attempt}"
        killed += run.killed
    assert killed > len(repeats(4, 50)) / 8, "too few were hit while they worked to prove anything"


def _kill_a_lane(run, seconds: float) -> None:
    time.sleep(seconds)
    run.killed = False
    for pid in run._engine.lane_pids()[:1]:
        try:
            os.kill(pid, signal.SIGKILL)
            run.killed = run.progress().state == "running"
        except ProcessLookupError:
            pass


@pytest.fixture
def marked_cache(tmp_path):
    """The real cache under a name that nobody else uses, so that every process that was given it can be found."""
    link = tmp_path / f"cache-{random.randrange(10**12)}"
    link.symlink_to(cache_dir())
    return str(link)


def _processes_with(text: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def _wait_until_it_minds(pid: int, how: signal.Signals) -> None:
    """Before the command has begun to look after signals, the interpreter's own start ends by them as it always does."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "SigCgt" in line)
        handles_term = int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1
        if handles_term:  # both are set together, and Python itself catches SIGINT earlier
            return
        time.sleep(0.005)
    raise AssertionError(f"the command never took care of {how.name}")


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_at_any_moment_leaves_no_process_and_no_half_file(
    write, rows, tmp_path, marked_cache, repeats, how
):
    evaluator, data, out = write("e.py", ECHO), rows([{"output": n} for n in range(150)]), tmp_path / "o.jsonl"
    codes = set()
    for attempt in repeats(4, 50):
        process = subprocess.Popen(
            [sys.executable, "-m", "evalcell", "run", evaluator, "--data", data, "--out", out, "--workers", "2"],
            env={**os.environ, "EVALCELL_CACHE_DIR": marked_cache},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        _wait_until_it_minds(process.pid, how)
        time.sleep(random.Random(attempt).random() * 1.2)
        process.send_signal(how)
        try:
            _, err = process.communicate(timeout=30)
        finally:
            process.kill()
        codes.add(process.returncode)
        assert process.returncode in (0, 130), err
        assert "Traceback" not in err
        assert out.exists() or process.returncode == 130  # whole, if it is there at all: see below
        for partial in (out, tmp_path / "o.jsonl.partial"):
            if partial.exists():
                found = [json.loads(line)["row"] for line in partial.read_text().splitlines()]
                assert found == list(range(len(found)))
                assert partial != out or len(found) == 150
                partial.unlink()
        deadline = time.monotonic() + 10
        while _processes_with(marked_cache) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert _processes_with(marked_cache) == []
    assert 130 in codes


def test_an_interrupt_that_strikes_where_exceptions_are_lost_still_ends_the_command(write, rows, tmp_path):
    """As inside a finalizer: the exception is printed and forgotten, and the command would go on."""
    lost = """
import os, signal, weakref
class Held: pass
def strike():
    held = Held()
    weakref.finalize(held, os.kill, os.getpid(), signal.SIGTERM)
    reference = weakref.ref(held, lambda _: [None for _ in range(10**5)])
    del held
import evalcell.cli.app
from evalcell.cli import entry
entry._PATIENCE_SECONDS = 1.0
real = evalcell.cli.app.main
def main():
    strike()
    return real()
evalcell.cli.app.main = main
entry.main()
"""
    source = "def evaluate(output):\n    while True: pass\n"
    arguments = ["run", write("e.py", source), "--data", rows([{"output": 1}]), "--limit", "wall_seconds=60"]
    done = subprocess.run(
        [sys.executable, "-c", lost, *map(str, arguments)], capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 130
    assert "error: Interrupted." in done.stderr


WRAPPED = """
import os, signal, sys, types
app = types.ModuleType("evalcell.cli.app")
def main():
    try:
        {strike}
    except KeyboardInterrupt:
        pass
    raise ValueError("the class is wrong")
app.main = main
sys.modules["evalcell.cli.app"] = app
from evalcell.cli import entry
entry.main()
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_an_interrupt_that_a_library_makes_its_own_error_of_is_one(how):
    source = WRAPPED.format(strike=f"signal.raise_signal(signal.{how})")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stderr) == (130, "error: Interrupted.\n")


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_an_interrupt_while_the_command_is_imported_ends_it_at_once_and_without_a_word_of_pythons(how):
    source = f"""
import os, signal, sys
class Striking:
    def find_spec(self, name, path=None, target=None):
        if name == "evalcell.cli.app":
            try:
                signal.raise_signal(signal.{how})
            except KeyboardInterrupt:  # lost, as where a weak reference's callback is interrupted
                pass
sys.meta_path.insert(0, Striking())
sys.argv[1:] = ["--version"]
from evalcell.cli import entry
entry.main()
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=40, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: Interrupted.\n")


def test_an_error_without_an_interrupt_is_shown_with_its_traceback():
    done = subprocess.run(
        [sys.executable, "-c", WRAPPED.format(strike="pass")], capture_output=True, text=True, timeout=40, check=False
    )
    assert done.returncode == 1
    assert "ValueError: the class is wrong" in done.stderr


def _held() -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "files": len(list(Path(tempfile.gettempdir()).iterdir())),
        "children": len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="counts by /proc")
def test_many_runs_in_one_process_leave_nothing_behind(repeats, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    evaluator = evalcell.Evaluator.from_source(ECHO)

    def once(number: int) -> None:
        with evalcell.run(evaluator, [{"output": n} for n in range(20)], out=tmp_path / "o.jsonl") as run:
            if number % 5:
                assert sum(1 for _ in run.results()) == 20
            else:
                next(run.results())  # and leave the rest

    for number in range(5):
        once(number)
    before = _held()
    for number in repeats(12, 300):
        once(number)
    after = _held()
    assert after["mappings"] <= before["mappings"] + 10, "the allocator may keep a few arenas, not one a run"
    assert {**after, "mappings": 0} == {**before, "mappings": 0}


SLOW = "def evaluate(output):\n    for _ in range(300_000): pass\n    return output\n"


@pytest.mark.parametrize("fit", ["", "def fit(rows): pass\n"])
def test_further_lanes_that_die_while_they_start_cost_themselves_only(monkeypatch, fit):
    opened, real = [], LaneProcess.send

    def send(process, message):
        sent = real(process, message)
        if isinstance(message, Open):
            opened.append(process.pid)
            if len(opened) > 1:
                os.kill(process.pid, signal.SIGKILL)
        return sent

    monkeypatch.setattr(LaneProcess, "send", send)
    monkeypatch.setattr(engine, "_LANE_START_SECONDS", 0.0)
    rows = [{"output": n} for n in range(200)]
    run = evalcell.run(evalcell.Evaluator.from_source(fit + SLOW), rows, workers=2)
    assert [record.score for record in run.results()] == list(range(200))
    assert len(opened) == 1 + MOST_FAILED_STARTS


def test_a_further_lane_whose_sandbox_fails_costs_itself_only(monkeypatch):
    opened, hear = [], Engine._hear

    def fail(self, lane, message):
        if isinstance(message, Opened):
            opened.append(lane)
            message = Faulted("no room") if len(opened) > 1 else message
        hear(self, lane, message)

    monkeypatch.setattr(Engine, "_hear", fail)
    monkeypatch.setattr(engine, "_LANE_START_SECONDS", 0.0)
    rows = [{"output": n} for n in range(200)]
    run = evalcell.run(evalcell.Evaluator.from_source(SLOW), rows, workers=2)
    assert [record.score for record in run.results()] == list(range(200))
    assert 1 < len(opened) <= 1 + MOST_FAILED_STARTS


@pytest.mark.parametrize("failing", [MOST_FAILED_STARTS - 1, MOST_FAILED_STARTS])
def test_the_only_lane_whose_sandbox_fails_at_its_start_is_replaced_some_times(monkeypatch, failing):
    opened, hear = [], Engine._hear

    def fail(self, lane, message):
        if isinstance(message, Opened):
            opened.append(lane)
            message = Faulted("no room") if len(opened) <= failing else message
        hear(self, lane, message)

    monkeypatch.setattr(Engine, "_hear", fail)
    ends = pytest.raises(SandboxFault, match="no room") if failing == MOST_FAILED_STARTS else contextlib.nullcontext()
    with ends:
        run = evalcell.run(evalcell.Evaluator.from_source(SLOW), [{"output": 1}], workers=1)
        assert [record.score for record in run.results()] == [1]
    assert len(opened) == MOST_FAILED_STARTS
