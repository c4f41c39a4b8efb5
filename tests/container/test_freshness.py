"""From which state a row starts in a container: as the module left things, or as the row before it did."""

import pytest
from boxed import ask, boxed, value
from walls import CONTAINERS, on_gvisor, wall_of

from evalcell_sandboxes import Exceeded, Invalid, Raised, Returned


@pytest.fixture(scope="module", params=CONTAINERS)
def container_wall(request):
    """On every engine."""
    return wall_of(request)


MODULE = """
import builtins, gc, locale, os, random, resource, signal, sys, tempfile, threading, time, warnings
from pathlib import Path

os.makedirs("/tmp/model/parts")
Path("/tmp/model/weights").write_text("1 2 3")
Path("/tmp/model/parts/0").write_text("part")
os.utime("/tmp/model/parts", ns=(1, 1))
os.utime("/tmp/model", ns=(1, 1))
SEEN = []

def world():
    return {
        "globals": SEEN,
        "files": {str(path): path.read_text() for path in sorted(Path("/tmp").rglob("*")) if path.is_file()},
        "times": {str(path): path.stat().st_mtime_ns for path in sorted(Path("/tmp").rglob("*")) if path.is_dir()},
        "modes": {str(path): path.stat().st_mode for path in sorted(Path("/tmp").rglob("*"))},
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "umask": (lambda was: [was, os.umask(was)][0])(os.umask(0)),
        "handler": str(signal.getsignal(signal.SIGUSR1)),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "threads": threading.active_count(),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "priority": os.nice(0),
        "modules": "colorsys" in sys.modules,
        "path": sys.path[:1],
        "recursion": sys.getrecursionlimit(),
        "builtins": hasattr(builtins, "left"),
        "filters": len(warnings.filters),
        "collector": gc.isenabled(),
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    }

def bend():
    SEEN.append("row")
    Path("/tmp/left").write_text("left")
    Path("/tmp/model/parts/left").write_text("left")
    os.environ["LEFT"] = "left"
    os.chdir("/")
    os.umask(0)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.setitimer(signal.ITIMER_REAL, 1000)
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    os.nice(1)
    import colorsys
    sys.path.insert(0, "/tmp")
    sys.setrecursionlimit(5_000)
    builtins.left = 1
    warnings.simplefilter("ignore")
    gc.disable()
    if os.fork() == 0: time.sleep(1000)

def evaluate(output):
    if output == "bend": bend()
    elif output != "world": exec(output)
    return world()
"""


def test_a_row_finds_nothing_of_what_another_has_bent(container_wall):
    with boxed(container_wall, MODULE) as session:
        before, _, after = map(value, ask(session, "world", "bend", "world"))
    assert after == before
    assert before["files"] == {"/tmp/model/parts/0": "part", "/tmp/model/weights": "1 2 3"}


def test_where_rows_share_state_they_find_all_of_it(container_wall):
    """The control: each of these can be bent."""
    with boxed(container_wall, MODULE, isolation="evaluator") as session:
        before, _, after = map(value, ask(session, "world", "bend", "world"))
    assert [name for name in before if after[name] == before[name]] == []


SERVER = """
import socket
def evaluate(output):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 45_871))
        server.listen()
        with socket.create_connection(server.getsockname()) as client:
            server.accept()[0].close()
            return client.recv(1).hex()
"""


def test_a_port_that_a_row_has_used_is_free_for_the_next(container_wall):
    if on_gvisor(container_wall):
        pytest.skip("gVisor keeps such ports for a minute, whatever it is told; SECURITY says so")
    with boxed(container_wall, SERVER) as session:
        assert list(map(value, ask(session, 1, 2, 3))) == ["", "", ""]


def test_a_port_stays_taken_in_a_container_that_is_not_told_otherwise(run):
    """The control."""
    tried = "evaluate(1)\ntry: evaluate(2)\nexcept OSError as error: print(error)\n"
    assert "Address already in use" in run(SERVER + tried)


CHANGES = {
    "written": "Path('/tmp/model/weights').write_text('6 6 6')",
    "appended": "Path('/tmp/model/weights').open('a').write('4')",
    "removed": "os.unlink('/tmp/model/weights')",
    "renamed": "os.rename('/tmp/model/weights', '/tmp/model/other')",
    "replaced-by-a-directory": "os.unlink('/tmp/model/weights'); os.mkdir('/tmp/model/weights')",
    "replaced-by-a-link": "os.unlink('/tmp/model/weights'); os.symlink('parts/0', '/tmp/model/weights')",
    "mode": "os.chmod('/tmp/model/weights', 0o400)",
    "directory-renamed": "os.rename('/tmp/model', '/tmp/other')",
    "directory-times": "os.utime('/tmp/model/parts', ns=(7, 7))",
    "directory-shut": "os.chmod('/tmp/model/parts', 0)",
    "times-put-back": "at = os.stat('/tmp/model/weights'); Path('/tmp/model/weights').write_text('6 6 6'); os.utime('/tmp/model/weights', ns=(at.st_atime_ns, at.st_mtime_ns))",
}  # fmt: skip


@pytest.fixture(scope="module")
def session(container_wall):
    with boxed(container_wall, MODULE + "\nLOADED = time.time()\n") as session:
        yield session


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_file_of_the_modules_that_a_row_has_changed_is_as_before_in_the_next(session, change):
    before = value(*ask(session, "world"))
    changed, after = ask(session, change.replace("; ", "\n"), "world")
    assert not isinstance(changed, Returned) or value(changed) != before or "times" in change
    assert value(after) == before


def test_a_module_with_files_is_not_loaded_again_for_rows_that_leave_them_alone(container_wall):
    source = MODULE.replace('"globals": SEEN', '"loaded": LOADED') + "\nLOADED = time.time()\n"
    with boxed(container_wall, source) as session:
        first, *later = map(
            value, ask(session, "world", *["Path('/tmp/model/parts/new').write_text('x')"] * 3, "world")
        )
        assert {row["loaded"] for row in later} == {first["loaded"]}
        assert later[-1]["files"] == first["files"]


def test_each_row_draws_its_own_numbers(container_wall):
    source = "import random\ndef evaluate(output): return random.random()\n"
    drawn = {}
    for isolation in ("row", "evaluator"):
        with boxed(container_wall, source, isolation=isolation) as session:
            drawn[isolation] = list(map(value, ask(session, 1, 2, 1)))
    assert drawn["row"] == drawn["evaluator"]
    assert drawn["row"][0] == drawn["row"][2] != drawn["row"][1]


FITTED = """
import os
from pathlib import Path
total = 0
def fit(rows):
    global total
    total = sum(row["output"] for row in rows)
    Path("/tmp/fitted").write_text(str(total))
def evaluate(output):
    global total
    total += output
    found = Path("/tmp/fitted").read_text()
    Path("/tmp/fitted").write_text("spoilt")
    return [total, found]
def aggregate(results): return [len(results), total, Path("/tmp/fitted").read_text()]
"""


def test_every_row_starts_from_what_fit_has_left_and_so_does_aggregate(container_wall):
    with boxed(container_wall, FITTED) as session:
        session.fit([b'{"output": 1}', b'{"output": 2}'])
        assert list(map(value, ask(session, 10, 20))) == [[13, "3"], [23, "3"]]
        assert value(session.aggregate(b"[1, 2]")) == [2, 3, "3"]


def test_where_rows_share_state_they_add_to_what_fit_has_left(container_wall):
    with boxed(container_wall, FITTED, isolation="evaluator") as session:
        session.fit([b'{"output": 1}', b'{"output": 2}'])
        assert list(map(value, ask(session, 10, 20))) == [[13, "3"], [33, "spoilt"]]
        assert value(session.aggregate(b"[]"))[1:] == [3, "3"]
        assert value(*ask(session, 10))[0] == 13, "a new process begins where fit has left off"


# -- rows in batches ---------------------------------------------------------------------------------------------------

BATCHED = """
import os, time
calls = []
def evaluate(output): return "alone"
def evaluate_batch(rows):
    assert type(rows) is list and all(type(row) is dict and set(row) == {"output"} for row in rows)
    calls.append(len(rows))
    print("batch of", len(rows))
    for row in rows:
        if row["output"] == "raise": raise ValueError("of this row")
        if row["output"] == "hang": time.sleep(1000)
        if row["output"] == "die": os._exit(3)
        if row["output"] == "memory": bytearray(10**12)
    return [float("nan") if row["output"] == "nan" else [row["output"], max(calls)] for row in rows] + EXTRA
"""


@pytest.fixture(scope="module")
def batched(container_wall):
    with boxed(container_wall, BATCHED.replace("EXTRA", "[]"), isolation="evaluator", wall_seconds=0.5) as session:
        yield session


def test_rows_that_share_state_are_given_to_evaluate_batch_together(batched):
    outcomes = ask(batched, *range(100))
    assert list(map(value, outcomes)) == [[row, 64] for row in range(100)]
    assert [outcome.stdout for outcome in outcomes if outcome.stdout] == ["batch of 64\n", "batch of 36\n"]


@pytest.mark.parametrize(
    ("output", "kind"),
    [("raise", Raised), ("hang", Exceeded), ("die", object), ("memory", Exceeded), ("nan", Invalid)],
)
def test_of_a_batch_only_the_row_that_fails_fails(batched, output, kind):
    before, failed, *after = ask(batched, 1, output, 2, 3)
    assert [value(outcome)[0] for outcome in (before, *after)] == [1, 2, 3]
    assert isinstance(failed, kind)
    assert not isinstance(failed, Returned)


@pytest.mark.parametrize("extra", ["[0]", "[0, 0]"])
def test_a_batch_of_another_length_gives_no_row_a_result(container_wall, extra):
    with boxed(container_wall, BATCHED.replace("EXTRA", extra), isolation="evaluator") as session:
        outcomes = ask(session, *range(5))
    assert all(isinstance(outcome, Invalid) for outcome in outcomes)
    assert {outcome.message for outcome in outcomes} == {
        "evaluate_batch must return a list with one result for each row"
    }


def test_where_every_row_starts_fresh_evaluate_batch_is_left_alone(container_wall):
    with boxed(container_wall, BATCHED.replace("EXTRA", "[]")) as session:
        assert list(map(value, ask(session, 1, 2))) == ["alone"] * 2


def test_records_of_batches_are_in_order_through_the_engine(score):
    source = '# /// script\n# [tool.evalcell]\n# isolation = "evaluator"\n# ///\n' + BATCHED.replace("EXTRA", "[]")
    source = source.replace('[row["output"], max(calls)]', 'float(row["output"])')
    scored = score(source, [{"output": n} for n in range(2_000)], sandbox="container", isolation="evaluator", lanes=2)
    assert [(record.row, record.score) for record in scored.records] == [(n, n) for n in range(2_000)]
    assert scored[0].stdout.startswith("batch of")


def test_a_file_that_the_module_reads_is_read_from_the_same_place_by_every_row(container_wall):
    source = "import os\nFILE = open(os.__file__, 'rb')\nFILE.read(10)\ndef evaluate(output):\n    return FILE.read(output).hex()\n"
    with boxed(container_wall, source) as session:
        first, second, other = map(value, ask(session, 5, 5, 9))
    assert first == second
    assert other.startswith(first)
