"""Modules that turn on those who load them: the rows fail, and nobody else is to blame."""

import time

import pytest
from boxed import ask, boxed, value
from hostile import WORLD, rows_that

from evalcell_sandboxes import Crashed, Exceeded, Raised, Returned
from evalcell_sandboxes.container import box

WALL_SECONDS = 0.5
LOAD_SECONDS = 0.8
GRACE_SECONDS = 6.0
"""For a machine that has much else to do. Who waits in vain waits for longer than that."""


def loading(wall, top, body="return 1", **options):
    return boxed(
        wall, rows_that(body, top=top), wall_seconds=WALL_SECONDS, load_seconds=LOAD_SECONDS, **options
    )  # fmt: skip


def in_time(session, *outputs):
    """The outcomes, none of which may take longer than loading the module twice and running the row."""
    outcomes = []
    for output in outputs:
        started = time.monotonic()
        outcomes += ask(session, output)
        assert time.monotonic() - started < WALL_SECONDS + 2 * LOAD_SECONDS + GRACE_SECONDS
    return outcomes


_BREAK = """
for found in gc.get_objects():
    if isinstance(found, dict) and found.get("__name__") in ("wire", "zygote", "evaluating", "results", "prints"):
        for name in [name for name in found if not name.startswith("__")]: found[name] = None
"""

NEVER_LOADED = {
    "executes-another": ("os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(100)'])", Exceeded),
    "executes-one-that-ends": ("os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])", Crashed),
    "ends": ("os._exit(0)", Crashed),
    "leaves": ("sys.exit(0)", Raised),
    "kills-itself": ("os.kill(os.getpid(), 9)", Crashed),
    "stops-itself": ("os.kill(os.getpid(), signal.SIGSTOP)", Exceeded),
    "closes-everything": ("os.closerange(0, 1024)", Crashed),
    "breaks-what-loads-it": (_BREAK, Crashed),
    "breaks-the-operating-system": ("os.write = os.fork = os.dup2 = os.close = None", Crashed),
}  # fmt: skip


@pytest.mark.parametrize(("top", "kind"), NEVER_LOADED.values(), ids=NEVER_LOADED)
def test_a_module_that_ends_its_own_loading_is_at_fault_for_every_row(container_wall, top, kind):
    with loading(container_wall, top) as session:
        assert isinstance(session.loaded, kind), session.loaded
        started = time.monotonic()
        assert {type(outcome) for outcome in ask(session, *range(20))} == {kind}
        assert time.monotonic() - started < 3 * LOAD_SECONDS + GRACE_SECONDS, "it was loaded for every row"


HARMLESS = {
    "signals-to-process-1": "for number in range(1, 65):\n    try: os.kill(1, number)\n    except OSError: pass",
    "daemons": "for _ in range(5): daemon(lambda: time.sleep(1))",
    "children-nobody-waits-for": "for _ in range(3): subprocess.Popen([sys.executable, '-S', '-c', ''])",
    "children-nobody-hears-of": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "threads": "for _ in range(5): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
    "no-directory": "os.mkdir('/tmp/d'); os.chdir('/tmp/d'); os.rmdir('/tmp/d')",
    "no-permissions": "os.umask(0o777)",
    "removed-file": "kept = open('/tmp/gone', 'w+b'); os.unlink('/tmp/gone'); kept.write(bytes(100_000)); kept.flush()",
    "handlers": "for number in (1, 2, 10, 12, 14, 15): signal.signal(number, lambda *_: os._exit(1))",
    "tracing": "sys.settrace(lambda *_: None); sys.setprofile(lambda *_: None)",
    "deaf": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
}  # fmt: skip


@pytest.mark.parametrize("top", HARMLESS.values(), ids=HARMLESS)
def test_what_a_module_does_to_itself_costs_its_rows_nothing(container_wall, top):
    with loading(container_wall, "began = time.time()\n" + top, "return began") as session:
        assert isinstance(session.loaded, Returned), session.loaded
        first, *later = map(value, in_time(session, *["attack"] * 4))
        assert later == [first] * 3, "the module was loaded more than once"
        assert value(*ask(session, "world")) == WORLD


_CONTROL = "for control in sockets(socket.SOCK_SEQPACKET): "
_FORGED = "for loading in sockets(socket.SOCK_STREAM): os.write(loading, record(b'false'))\n"

HARMFUL = {
    "closes-its-control": _CONTROL + "os.close(control)",
    "shuts-its-control": _CONTROL + "socket.socket(fileno=os.dup(control)).shutdown(socket.SHUT_RDWR)",
    "floods-its-control": _CONTROL + "\n    try:\n        os.set_blocking(control, False)\n        while True: os.write(control, b'x' * 5_000)\n    except OSError: pass",
    "leaves-no-file": "fill()",
    "leaves-no-descriptor": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "leaves-no-process": "for _ in range(200):\n    try:\n        if os.fork() == 0: time.sleep(1000)\n    except OSError: pass",
    "leaves-no-time": "resource.setrlimit(resource.RLIMIT_CPU, (0, 1))\nthreading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()",
    "dies": "fill_half = [open(f'/tmp/{n}', 'w').close() for n in range(5_000)]\n" + _FORGED + "os._exit(0)",
    "hangs": _FORGED + "while True: time.sleep(1)",
    "bends-builtins": "import builtins\nfor name in ('len', 'str', 'isinstance', 'bytes', 'range'): setattr(builtins, name, None)",
    "never-reads-its-arguments": "def never(*_):\n    while True: time.sleep(1)\nos.read = os.readv = never",
}  # fmt: skip


ONLY_FORKS_SUFFER = ("floods-its-control",)
"""Rows that are kept are served all the same: what starts them has a connection of its own."""
SHARED = ("closes-its-control", "leaves-no-file", "dies")


@pytest.mark.parametrize(
    ("name", "isolation"), [*((name, "row") for name in HARMFUL), *((name, "evaluator") for name in SHARED)]
)
def test_a_module_that_cannot_serve_its_rows_is_at_fault_and_nobody_waits(container_wall, monkeypatch, name, isolation):
    """Some rows may be served before it shows. None of them is the infrastructure's, which would be an exception."""
    if name in ONLY_FORKS_SUFFER:
        monkeypatch.setattr(box, "KEEPING", frozenset())
    with loading(container_wall, HARMFUL[name], isolation=isolation) as session:
        outcomes = in_time(session, "attack", "x" * 8_000_000)
        assert any(not isinstance(outcome, Returned) for outcome in outcomes), outcomes
        assert all(isinstance(outcome, Crashed | Exceeded | Raised | Returned) for outcome in outcomes), outcomes


def test_a_module_that_dies_some_time_after_it_was_loaded_is_loaded_anew(container_wall):
    top = "began = time.time()\nthreading.Thread(target=lambda: (time.sleep(0.5), os._exit(0))).start()"
    lives = set()
    with loading(container_wall, top, "return began") as session:
        deadline = time.monotonic() + 60
        while len(lives) < 3 and time.monotonic() < deadline:
            (outcome,) = in_time(session, "attack")
            assert isinstance(outcome, Returned | Crashed), outcome
            lives |= {outcome.value} if isinstance(outcome, Returned) else set()
    assert len(lives) == 3, "no row was served by a module that was loaded anew"


def test_a_module_without_room_says_so(container_wall):
    with boxed(container_wall, rows_that("return 1", top=HARMFUL["leaves-no-file"])) as session:
        (outcome,) = ask(session, "attack")
        assert outcome.message == "the module has left no room in /tmp"


PIPES = {
    "pipe": "reading, writing = os.pipe()",
    "sockets": "pair = socket.socketpair(); reading, writing = (end.fileno() for end in pair)",
    "file": "reading = os.open('/tmp/file', os.O_RDWR | os.O_CREAT); writing = os.dup(reading); os.unlink('/tmp/file')",
    "above-a-lowered-limit": "a, b = os.pipe(); reading, writing = os.dup2(a, 500), os.dup2(b, 501); resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
}  # fmt: skip


@pytest.mark.parametrize("top", PIPES.values(), ids=PIPES)
def test_what_a_module_has_opened_carries_nothing_from_row_to_row(container_wall, top):
    with loading(container_wall, top, "return os.write(writing, b'x')") as session:
        (outcome,) = ask(session, "attack")
    assert isinstance(outcome, Raised)
    assert outcome.message == "[Errno 9] Bad file descriptor"


@pytest.mark.parametrize("top", PIPES.values(), ids=PIPES)
def test_where_rows_share_state_they_share_what_the_module_has_opened_as_long_as_they_can(container_wall, top):
    """The control: it is the fresh state of a row that takes it away."""
    kept = f"{top}\nos.write(writing, b'x')"
    with loading(container_wall, "", kept.replace("\n", "; ") + "\nreturn 1", isolation="evaluator") as session:
        assert value(*ask(session, "attack")) == 1


CHURN = """
for number in range(300): os.mkdir(f"/tmp/{number}")
def churn():
    while True:
        for number in range(300):
            try:
                os.rmdir(f"/tmp/{number}")
                os.symlink("/proc/1", f"/tmp/{number}")
                os.unlink(f"/tmp/{number}")
                os.mkdir(f"/tmp/{number}")
                os.utime(f"/tmp/{number}", ns=(number, number))
            except OSError: pass
threading.Thread(target=churn, daemon=True).start()
"""


@pytest.mark.parametrize("isolation", ["row", "evaluator"])
def test_a_module_that_changes_tmp_under_the_supervisor_is_at_fault_itself(container_wall, isolation):
    """Nothing that vanishes while it is looked at ends the supervisor: that would be an exception here."""
    with loading(container_wall, CHURN, isolation=isolation) as session:
        outcomes = in_time(session, *["attack"] * 15)
    assert {type(outcome) for outcome in outcomes} <= {Returned, Crashed, Exceeded}
