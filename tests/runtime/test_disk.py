"""What is kept on disk stays within a budget; what was not used for longest goes first, and nothing in use ever goes."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evalcell import disk
from evalcell_sandboxes import Asset, SandboxFault, assets, sandbox
from evalcell_sandboxes.disk import Kept, alone_with, held
from evalcell_sandboxes.wasm import image, module

HOLD = """
import sys, time
from evalcell_sandboxes.disk import held
with held(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""

NO_MORE_FILES = """
import os, resource
from evalcell_sandboxes.disk import held
open_now = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 1, open_now + 1))
try:
    with held("a", "b", "c", "d"):
        print("held")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with modules of 100 bytes, used one after the other, and an asset that was used before all of them."""
    monkeypatch.setenv("EVALCELL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    for place in ("wasm", "assets"):
        (tmp_path / "cache" / place).mkdir(mode=0o700)
    now = time.time()
    for number, name in enumerate(("assets/aa", "wasm/b.cwasm", "wasm/c.cwasm", "wasm/d.wasm.gz", "wasm/e.cwasm")):
        path = tmp_path / "cache" / name
        path.write_bytes(b"x" * 100)
        os.utime(path, (now, now - 1000 + number))
    return tmp_path / "cache"


def left(cache):
    return sorted(path.name for place in ("wasm", "assets") for path in (cache / place).iterdir())


@pytest.fixture
def holder():
    """Starts a process that holds something, and gives it when it does."""
    started = []

    def hold(key):
        process = subprocess.Popen([sys.executable, "-c", HOLD, key], stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_was_not_used_for_longest_goes_first(cache):
    gone = disk.prune([sandbox("wasm")], 300)
    assert [item.key for item in gone] == ["aa", "b.cwasm"]
    assert left(cache) == ["c.cwasm", "d.wasm.gz", "e.cwasm"]


def test_nothing_goes_within_the_budget(cache):
    assert disk.sizes([sandbox("wasm")]) == {"module": 400, "asset": 100}
    assert disk.prune([sandbox("wasm")], 500) == []
    assert len(left(cache)) == 5


def test_what_is_in_use_stays_whatever_the_budget(cache, holder):
    holder("module-b.cwasm")
    with assets.holding([Asset("words.txt", "aa")]):
        disk.prune([sandbox("wasm")], 0)
    assert left(cache) == ["aa", "b.cwasm"]


def test_what_cannot_be_removed_stays_and_is_no_reason_to_fail(cache):
    class Stubborn:
        def kept(self):
            return [Kept("layer", "first", 100, 0.0), Kept("layer", "second", 100, 1.0)]

        def discard(self, item):
            raise {"first": SandboxFault, "second": OSError}[item.key]("an engine that has its own mind")

    gone = disk.prune([Stubborn(), sandbox("wasm")], 0)
    assert [item.key for item in gone] == ["aa", "b.cwasm", "c.cwasm", "d.wasm.gz", "e.cwasm"]


def test_a_thousand_assets_are_held_with_few_files(cache):
    many = [
        Asset(f"{number}.txt", hashlib.sha256(bytes([number % 256, number // 256])).hexdigest())
        for number in range(1000)
    ]
    before = len(list(Path("/proc/self/fd").iterdir()))
    with assets.holding(many):
        assert len(list(Path("/proc/self/fd").iterdir())) - before <= 16
        for asset in many:
            (cache / "assets" / asset.sha256).write_bytes(b"x")
        disk.prune([], 0)
        assert len(list((cache / "assets").glob("*"))) >= 1000


def test_what_cannot_be_held_because_too_many_files_are_open_is_an_error(cache):
    done = subprocess.run([sys.executable, "-c", NO_MORE_FILES], capture_output=True, text=True, check=False)
    assert done.stdout == "Too many open files\n", done.stderr


def test_the_image_is_held_while_it_is_compiled(cache, monkeypatch):
    (cache / "wasm" / image.file_name()).write_bytes(b"not looked at here")
    monkeypatch.setattr(image, "packaged", lambda: None)
    seen = []

    def compiled(command, _purpose):
        disk.prune([sandbox("wasm")], 0)
        seen.append(Path(command[-2]).exists())
        Path(command[-1]).write_bytes(b"")

    monkeypatch.setattr(module, "_run", compiled)
    module.prepare(lambda *_: None)
    assert seen == [True]


def test_assets_stay_while_some_are_being_copied(cache):
    with assets.copying():
        disk.prune([sandbox("wasm")], 0)
    assert left(cache) == ["aa"]


def test_what_a_killed_run_has_left_half_done_goes_too_once_it_is_old(cache):
    (cache / "assets" / ".old.x").write_bytes(b"x" * 100)
    os.utime(cache / "assets" / ".old.x", (0, 0))
    (cache / "wasm" / ".young.x").write_bytes(b"x" * 100)
    disk.prune([sandbox("wasm")], 0)
    assert left(cache) == [".young.x"]


def test_a_run_holds_its_assets_and_the_budget_still_counts_for_others(cache, monkeypatch, write, rows, evalcell):
    """In a cache of its own, with the compiled module of the real one, and with a new asset each time."""
    block = '# /// script\n# [tool.evalcell]\n# assets = ["words.txt"]\n# ///\n'
    evaluator = write("e.py", block + "def evaluate(output):\n    return len(open('words.txt').read())\n")
    data = rows([{"output": 1}])
    size = 200_000
    monkeypatch.delenv("EVALCELL_CACHE_DIR")
    shutil.copy(module.path(), cache / "wasm")
    budget = module.path().stat().st_size + int(2.5 * size)
    environment = {"EVALCELL_CACHE_DIR": str(cache), "EVALCELL_DISK_BYTES": str(budget)}
    for number in range(4):
        write("words.txt", str(number) * size)
        done = evalcell("run", evaluator, "--data", data, env=environment)
        assert done.code == 0, done.err
    assert len(list((cache / "assets").iterdir())) == 2


def test_control_without_a_holder_all_of_it_goes(cache):
    disk.prune([sandbox("wasm")], 0)
    assert left(cache) == []


def test_a_process_that_was_killed_holds_nothing(cache, holder):
    process = holder("module-b.cwasm")
    with alone_with("module-b.cwasm") as free:
        assert not free
    process.send_signal(signal.SIGKILL)
    process.wait()
    with alone_with("module-b.cwasm") as free:
        assert free


def test_two_may_hold_the_same(cache, holder):
    holder("module-b.cwasm")
    with held("module-b.cwasm"), alone_with("module-b.cwasm") as free:
        assert not free


def test_using_something_makes_it_the_last_to_go(cache):
    used = module.path()
    used.write_bytes(b"x" * 100)
    os.utime(used, (0, 0))
    module.prepare(lambda *_: None)
    disk.prune([sandbox("wasm")], 100)
    assert left(cache) == [used.name]


def test_a_run_holds_the_module_that_it_runs_in(score, engine_for):
    made = engine_for("def evaluate(output): return output")
    assert made.planned.sandbox.name == "wasm"
    with alone_with(f"module-{module.path().name}") as free:
        assert not free


def test_a_cache_that_cannot_be_written_to_is_no_reason_to_fail(monkeypatch):
    monkeypatch.setenv("EVALCELL_CACHE_DIR", "/proc/nowhere")
    with held("anything"):
        assert assets.kept() == []
        assert disk.sizes([sandbox("wasm")]) == {}
