"""Rows that run in the same memory one after the other: that they do, and that none finds anything of another."""

import itertools
import random
import time

import pytest
from boxed import ask, boxed, value
from promises import lacking

from evalcell_sandboxes import Crashed, Exceeded, Raised, Returned
from evalcell_sandboxes.container import box

MODULE = """
import builtins, ctypes, gc, hashlib, json, mmap, os, random, resource, signal, sys, threading, time

PAGE = 4096
STATE = bytearray(random.Random(1).randbytes(256 * PAGE))
LISTS = [[number] for number in range(2_000)]
libc = ctypes.CDLL(None, use_errno=True)

def place():
    return ctypes.addressof(ctypes.c_char.from_buffer(STATE))

def page(number):
    \"\"\"The address of a page that is nothing but a part of STATE.\"\"\"
    return (place() // PAGE + 1 + number) * PAGE

def process(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()

def keeper():
    \"\"\"The number of the process that this one shares its memory with; 0 where it is a fork.\"\"\"
    others = sorted({int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, os.getpid()})
    return others[1] if len(others) > 1 else 0

def world():
    return {
        "state": hashlib.sha256(STATE).hexdigest(),
        "lists": hashlib.sha256(json.dumps(LISTS).encode()).hexdigest(),
        "rounding": libc.fegetround(),
        "builtins": hasattr(builtins, "left"),
        "modules": "colorsys" in sys.modules,
        "collector": gc.get_threshold(),
        "handler": str(signal.getsignal(signal.SIGUSR1)),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "waiting": sorted(signal.sigpending()),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "directory": os.getcwd(),
        "umask": (lambda was: [was, os.umask(was)][0])(os.umask(0o22)),
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "killed-first": open("/proc/self/oom_score_adj").read(),
        "large-pages": [line for line in open("/proc/self/status") if line.startswith("THP_enabled")],
        "name": open("/proc/self/comm").read(),
        "mappings": [line.split()[:2] for line in open("/proc/self/maps")],
    }

def evaluate(output):
    found = [keeper(), world()]
    exec(output, {**globals()})
    return found
"""
MANY = 40
"""After as many rows it is known what pages rows write to."""


@pytest.fixture(scope="module", autouse=True)
def keeps(container_wall):
    """Where the engine's kernel lets no rows be kept, they are forks, which other tests are about."""
    with boxed(container_wall, MODULE) as session:
        keeper, _ = value(*ask(session, "pass"))
    if not keeper:
        lacking("the engine's machine or its kernel does not let rows be kept in the same memory")


@pytest.fixture
def forking(monkeypatch):
    """As on machines where rows cannot be kept."""
    monkeypatch.setattr(box, "KEEPING", frozenset())


def alike(found):
    """Whether all rows have found the same, but for what tells a row that is kept from one that is a fork."""
    worlds = {"kept": [], "forked": []}
    for keeper, world in found:
        worlds["kept" if keeper else "forked"].append(world)
    return all(world == some[0] for some in worlds.values() for world in some)


def test_rows_run_in_the_same_memory(container_wall):
    with boxed(container_wall, MODULE) as session:
        found = [value(outcome) for outcome in ask(session, *["pass"] * 2 * MANY)]
    assert len({keeper for keeper, _ in found[MANY:]} - {0}) <= 3
    assert alike(found)


def test_rows_are_forks_where_they_cannot_be_kept(container_wall, forking):
    with boxed(container_wall, MODULE) as session:
        found = [value(outcome) for outcome in ask(session, "pass", "STATE[0] = 1", "pass")]
    assert [keeper for keeper, _ in found] == [0, 0, 0]
    assert found[2][1] == found[0][1]


def test_rows_are_forks_where_the_module_has_threads(container_wall):
    top = "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
    with boxed(container_wall, MODULE + top) as session:
        assert [value(outcome)[0] for outcome in ask(session, *["pass"] * 3)] == [0, 0, 0]


# -- what costs nothing ------------------------------------------------------------------------------------------------

QUIET = {
    "bytes": "STATE[:] = bytes(len(STATE))",
    "objects": "for some in LISTS: some.append(1)",
    "globals": "LISTS.clear(); builtins.left = 1; sys.modules['colorsys'] = sys",
    "rounding": "libc.fesetround(0x400)",
    "collector": "gc.set_threshold(1)",
    "handlers": "signal.signal(signal.SIGUSR1, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
    "timer": "signal.setitimer(signal.ITIMER_REAL, 1000)",
    "directory": "os.chdir('/'); os.umask(0)",
    "descriptors": "[os.dup(1) for _ in range(20)]; os.pipe(); os.close(0)",
    "hides": "assert libc.prctl(4, 0, 0, 0, 0) == 0",
    "raises": "raise ValueError(STATE.clear())",
    "exits": "STATE[0] ^= 1; os._exit(3)",
    "crashes": "STATE[0] ^= 1; ctypes.string_at(8)",
}  # fmt: skip


@pytest.mark.parametrize("row", QUIET.values(), ids=QUIET)
def test_what_a_row_does_to_its_own_process_is_undone_and_its_memory_kept(container_wall, row):
    with boxed(container_wall, MODULE) as session:
        ask(session, *["pass"] * MANY, *[row] * 3)
        honest = [value(outcome) for outcome in ask(session, *["pass", row] * 6, "pass")[::2]]
    assert alike(honest)
    keepers = [keeper for keeper, _ in honest]
    assert any(keeper == later != 0 for keeper, later in itertools.pairwise(keepers)), keepers


def test_where_rows_share_state_that_is_not_undone(container_wall):
    """The control, as far as a process survives it."""
    rows = [row for name, row in QUIET.items() if name not in ("hides", "raises", "exits", "crashes")]
    with boxed(container_wall, MODULE, isolation="evaluator") as session:
        worlds = [value(outcome)[1] for outcome in ask(session, *rows, "pass")]
    assert all(before != later for before, later in itertools.pairwise(worlds))


def test_whatever_rows_write_wherever_none_finds_it(container_wall):
    """Pages that no row has written to before turn up again and again among those that are known."""
    drawn = random.Random(2)
    rows = []
    for _ in range(150):
        places = [drawn.randrange(256 * 4096) for _ in range(drawn.choice([0, 1, 1, 5]))]
        lists = [drawn.randrange(2_000) for _ in range(drawn.choice([0, 1, 5]))]
        rows.append(f"for at in {places}: STATE[at] ^= 255\nfor at in {lists}: LISTS[at].append(at)")
    with boxed(container_wall, MODULE) as session:
        found = [value(outcome) for outcome in ask(session, *rows, "pass")]
    assert alike(found)
    keepers = [keeper for keeper, _ in found]
    assert any(keeper == later != 0 for keeper, later in itertools.pairwise(keepers))


# -- what costs a keeper -----------------------------------------------------------------------------------------------

LOUD = {
    "drops-pages": "assert libc.madvise(ctypes.c_void_p(page(9)), PAGE, 4) == 0",
    "frees-pages": "assert libc.madvise(ctypes.c_void_p(page(9)), PAGE, 8) == 0",
    "unmaps-pages": "assert libc.munmap(ctypes.c_void_p(page(9)), PAGE) == 0; os._exit(0)",
    "maps-over-pages": "libc.mmap.restype = ctypes.c_void_p; libc.mmap(ctypes.c_void_p(page(9)), PAGE, 3, 0x32, -1, 0)",
    "protects-pages": "assert libc.mprotect(ctypes.c_void_p(page(9)), PAGE, 1) == 0",
    "writes-to-code": "assert libc.mprotect(ctypes.c_void_p(ctypes.cast(libc.fegetround, ctypes.c_void_p).value & -PAGE), PAGE, 7) == 0; ctypes.memset(ctypes.cast(libc.fegetround, ctypes.c_void_p).value, 0xcc, 1)",
    "locks-pages": "assert libc.mlock(ctypes.c_void_p(page(9)), PAGE) == 0",
    "maps-more": "libc.mmap.restype = ctypes.c_void_p; assert libc.mmap(None, PAGE, 3, 0x22, -1, 0)",
    "takes-much": "bytearray(100 * 2**20)",
    "large-pages": "assert libc.prctl(41, 0, 0, 0, 0) == 0",
    "thread": "threading.Thread(target=STATE.clear).start()",
    "thread-that-stays": "threading.Thread(target=lambda: [STATE.reverse() for _ in iter(int, 1)], daemon=True).start()",
    "child": "os.fork() or (STATE.clear(), os._exit(0))",
    "child-that-shares-the-memory": "ctypes.PyDLL(None).vfork() or (STATE.clear(), os._exit(0))",
    "child-that-shares-it-and-stays": "libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), ctypes.c_void_p(page(200)), 0x100, None)",
    "another-program": "os.execv(sys.executable, [sys.executable, '-c', ''])",
    "grows-the-stack": "ctypes.string_at(int(world()['mappings'][[l.split()[-1] for l in open('/proc/self/maps')].index('[stack]')][0].split('-')[0], 16) - 30 * PAGE, 1)",
    "stops-its-keeper": "os.kill(keeper(), signal.SIGSTOP)",
    "wakes-its-keeper": "os.kill(keeper(), signal.SIGSTOP); os.kill(keeper(), signal.SIGCONT)",
    "signals-its-keeper": "os.kill(keeper(), signal.SIGUSR1)",
    "ends-its-keeper": "os.kill(keeper(), signal.SIGKILL)",
}  # fmt: skip


@pytest.mark.parametrize("row", LOUD.values(), ids=LOUD)
def test_what_reaches_beyond_a_rows_own_process_costs_the_memory(container_wall, row):
    """No row starts in memory that another has changed otherwise than by writing to it.

    It is run a few times first, so that it is not the pages it writes to that cost the memory.
    """
    with boxed(container_wall, MODULE, wall_seconds=2.0) as session:
        ask(session, *["pass"] * MANY, *[row, *["pass"] * 5] * 6)
        outcomes = ask(session, "pass", "pass", row, "pass", "pass", row, "pass")
    assert isinstance(outcomes[2], Returned | Crashed | Exceeded), outcomes[2]
    (first, world), (before, _), (between, _), *later = [value(outcomes[at]) for at in (0, 1, 3, 4, 6)]
    assert first == before != 0, "it was not kept before"
    assert between != before
    assert all(found == world for _, found in later)


SEEN_WHEN_SHARED = "drops-pages", "maps-over-pages", "protects-pages", "maps-more", "thread"


def test_where_rows_share_state_it_is_seen(container_wall):
    """The control."""
    for name in SEEN_WHEN_SHARED:
        with boxed(container_wall, MODULE, isolation="evaluator") as session:
            (_, before), (_, later) = [value(outcome) for outcome in ask(session, LOUD[name], "pass")]
        assert later != before, name


SHUT = {
    "memory": "open(f'/proc/{pid}/mem', 'r+b')",
    "what-to-dump": "open(f'/proc/{pid}/coredump_filter', 'w')",
    "turn-to-be-killed": "open(f'/proc/{pid}/oom_score_adj', 'w')",
    "environment": "open(f'/proc/{pid}/environ')",
    "pages": "open(f'/proc/{pid}/pagemap')",
    "being-looked-into": "libc.prctl(4, 1, 0, 0, 0) and os.open('/proc/1/mem', 0)",
}


@pytest.mark.parametrize("pid", ["os.getpid()", "keeper()"], ids=["itself", "its-keeper"])
@pytest.mark.parametrize("opening", SHUT.values(), ids=SHUT)
def test_a_row_that_is_kept_is_as_shut_as_a_fork(container_wall, opening, pid):
    with boxed(container_wall, MODULE) as session:
        before = [value(outcome) for outcome in ask(session, *["pass"] * MANY)][-1]
        (outcome,) = ask(session, f"assert keeper() == {before[0]}; pid = {pid}; {opening}")
    assert isinstance(outcome, Raised)
    assert outcome.exception == "PermissionError"


# -- what outlives a row ------------------------------------------------------------------------------------------------

IN_FLIGHT = """
import array, socket

def put(end, descriptors):
    end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])

def bury(head, depth):
    \"\"\"Leaves a descriptor in a chain of sockets that hold each other: the kernel clears it up link by link, later.\"\"\"
    for _ in range(depth):
        into, link = socket.socketpair()
        put(into, [head.fileno()])
        head, _ = link, head.close()
    into, link = socket.socketpair()
    put(into, [link.fileno(), head.fileno()])
    put(link, [into.fileno()])

def signal_later(number, whom):
    reading, writing = os.pipe()
    import fcntl
    fcntl.fcntl(reading, 10, number)
    fcntl.fcntl(reading, fcntl.F_SETOWN, whom)
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    into, head = socket.socketpair()
    put(into, [reading])
    other, last = socket.socketpair()
    put(other, [writing, head.fileno()])
    bury(last, 1)

def fill_up():
    into, head = socket.socketpair()
    bury(head, 50)
    with contextlib.suppress(OSError):
        while True: put(into, [0] * 250)
"""


def test_no_signal_is_sent_when_a_row_is_gone(container_wall):
    with boxed(container_wall, MODULE + IN_FLIGHT, wall_seconds=1.0) as session:
        ask(session, *["pass"] * MANY)
        for _ in range(5):
            attack, *later = ask(session, "signal_later(9, -1)", *["time.sleep(0.003)"] * 6)
            assert attack.exception == "PermissionError"
            assert all(isinstance(outcome, Returned) for outcome in later)


SHARED_THINGS = {
    "flags-of-standard-input": ("fcntl.fcntl(0, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)", "fcntl.fcntl(0, fcntl.F_GETFL)"),
    "lock-on-standard-input": ("fcntl.flock(0, fcntl.LOCK_EX)", "fcntl.flock(os.open('/dev/null', 0), fcntl.LOCK_EX | fcntl.LOCK_NB)"),
    "the-sessions-nice-value": (
        "subprocess.run([sys.executable, '-c', 'open(\"/proc/self/autogroup\", \"w\").write(\"13\")']).returncode",
        """subprocess.run([sys.executable, "-c", "print(open('/proc/self/autogroup').read())"], capture_output=True, text=True).stdout.split()[1:]""",
    ),
    "a-handler-of-the-module": ("os.kill(zygote(), signal.SIGUSR2)", "HITS"),
    "a-handler-of-the-module-by-its-group": ("os.kill(0, signal.SIGUSR2)", "HITS"),
    "signals-that-wait-for-the-module": ("os.kill(zygote(), signal.SIGUSR1)", "[line for line in open(f'/proc/{zygote()}/status') if 'Pnd' in line]"),
    "when-a-file-was-read": ("open('/tmp/read').read()", "os.stat('/tmp/read').st_atime_ns"),
}  # fmt: skip
THINGS = """
import fcntl, subprocess
HITS = []
signal.signal(signal.SIGUSR2, lambda *_: HITS.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
open("/tmp/read", "w").write("x")
os.utime("/tmp/read", ns=(1, 1))
def zygote():
    return min({int(name) for name in os.listdir("/proc") if name.isdigit()} - {1, os.getpid()})
def evaluate(output):
    return eval(output) or None
"""


@pytest.mark.parametrize("forks", [False, True], ids=["kept", "forked"])
@pytest.mark.parametrize(("change", "look"), SHARED_THINGS.values(), ids=SHARED_THINGS)
def test_what_processes_share_carries_nothing_from_row_to_row(container_wall, monkeypatch, change, look, forks):
    if forks:
        monkeypatch.setattr(box, "KEEPING", frozenset())
    with boxed(container_wall, MODULE + THINGS) as session:
        before, changed, later, again = ask(session, look, change, look, look)
    assert isinstance(changed, Returned | Raised), changed
    assert value(before) == value(later) == value(again)


def test_a_file_in_the_place_of_standard_input_is_read_from_its_start_by_every_row(container_wall):
    top = "open('/tmp/data', 'w').write('one\\ntwo\\n'); os.close(0); DATA = open('/tmp/data')\ndef evaluate(output): return [DATA.fileno(), DATA.readline()]\n"
    with boxed(container_wall, MODULE + top) as session:
        assert [value(outcome) for outcome in ask(session, 1, 2, 3)] == [[0, "one\n"]] * 3


def test_a_process_that_is_gone_before_its_row_comes_does_not_cost_its_time(container_wall):
    with boxed(
        container_wall, MODULE + "os.register_at_fork(after_in_child=lambda: os._exit(3))\n", wall_seconds=30.0
    ) as session:
        started = time.monotonic()
        assert all(isinstance(outcome, Crashed) for outcome in ask(session, 1, 2))
        assert time.monotonic() - started < 20


def test_descriptors_on_their_way_are_not_counted_against_later_rows(container_wall):
    """They are counted for a user, and process 1 has the same."""
    with boxed(container_wall, "import contextlib\n" + MODULE + IN_FLIGHT) as session:
        ask(session, *["pass"] * MANY)
        outcomes = ask(session, "fill_up()", *["pass"] * 6)
    assert all(isinstance(outcome, Returned) for outcome in outcomes)


# -- modules that turn on it -------------------------------------------------------------------------------------------

_BENT = """
frame = sys._getframe()
while "keep" not in frame.f_globals: frame = frame.f_back
guest = frame.f_globals
clone = guest["kernel"].clone
"""
BENT = {
    "rows-of-the-keepers-own": "guest['kernel'].clone = lambda flags: clone(flags & ~0x8000 if flags & 0x4000 else flags)",
    "no-waiting-for-rows": "guest['kernel'].clone = lambda flags: clone(flags & ~0x4000)",
    "another-call": "guest['kernel'].clone = lambda flags: ctypes.PyDLL(None).vfork() if flags & 0x4000 else clone(flags)",
    "many-keepers": "guest['kernel'].clone = lambda flags: [clone(flags) or time.sleep(1000) for _ in range(5)][0]",
    "says-nonsense": "guest['keep'] = lambda _, descriptor, files: os.write(descriptor, b'\\xff' * 16)",
    "says-it-is-process-1": "guest['keep'] = lambda _, descriptor, files: os.write(descriptor, b'1')",
    "says-nothing": "guest['keep'] = lambda _, descriptor, files: None",
    "leaves-before": "os.register_at_fork(before=lambda: os._exit(0))",
    "leaves-as-a-row": "os.register_at_fork(after_in_child=lambda: os._exit(0))",
    "hangs-as-a-row": "os.register_at_fork(after_in_child=lambda: time.sleep(100))",
    "maps-terabytes": "libc.mmap.restype = ctypes.c_void_p\nfor at in range(500): libc.mmap(ctypes.c_void_p(0x100000000000 + at * 2**34), ctypes.c_size_t(2**34 - PAGE), 1, 0x104022, -1, ctypes.c_long(0))",
}  # fmt: skip


@pytest.mark.parametrize("top", BENT.values(), ids=BENT)
def test_a_module_that_bends_what_starts_its_rows_has_itself_to_blame(container_wall, top):
    """What comes of its rows is theirs: none of it ends the supervisor or has it wait, which would be an exception."""
    with boxed(container_wall, MODULE + _BENT + top, wall_seconds=1.0) as session:
        started = time.monotonic()
        ask(session, *["pass"] * 3)
        assert time.monotonic() - started < 20


def test_a_keeper_that_is_ended_while_it_is_looked_at_is_the_rows_doing(container_wall):
    attack = (
        "victim = keeper()\n"
        "if not os.fork():\n"
        "    until = time.monotonic() + 1\n"
        "    while process(victim)[0] != 't' and time.monotonic() < until: pass\n"
        "    os.kill(victim, 9)\n"
        "    os._exit(0)\n"
        "time.sleep(0.02)"
    )
    with boxed(container_wall, MODULE) as session:
        ask(session, *["pass"] * MANY)
        for _ in range(10):
            outcomes = ask(session, attack, "pass", *["pass"] * 4)
            assert all(isinstance(outcome, Returned) for outcome in outcomes[1:])


# -- what is hard on it ------------------------------------------------------------------------------------------------


def test_rows_that_always_cost_a_keeper_are_forked_in_the_end(container_wall):
    with boxed(container_wall, MODULE) as session:
        found = [value(outcome) for outcome in ask(session, *["os.fork() or os._exit(0)"] * MANY)]
    assert found[0][0] != 0
    assert found[-1][0] == 0
    assert alike(found)


def test_a_row_deep_in_calls_leaves_nothing_on_the_stack(container_wall):
    deep = "def fall(n):\n    return n and sorted([n], key=lambda _: fall(n - 1))\nsys.setrecursionlimit(10_000); fall(1_000)"
    with boxed(container_wall, MODULE) as session:
        found = [value(outcome) for outcome in ask(session, *["pass", deep] * 10, "pass")]
    assert alike(found)


def test_one_row_that_writes_much_does_not_slow_all_later_ones(container_wall):
    """Its pages are not put back for all. What is not put back is not there: so memory is looked at, not the clock."""
    with boxed(container_wall, MODULE) as session:
        ask(session, *["pass"] * MANY)
        ask(session, "kept = bytearray(14 * 2**20)\nfor at in range(0, len(kept), PAGE): kept[at] = 1", *["pass"] * 5)
        outcome = ask(session, "pass")[0]
    assert outcome.usage.memory_bytes < 40 * 2**20


def test_memory_of_rows_is_counted_for_each(container_wall):
    with boxed(container_wall, MODULE) as session:
        before, much, later = ask(session, *["pass"] * MANY, "bytearray(100 * 2**20)", "pass")[-3:]
    assert much.usage.memory_bytes > before.usage.memory_bytes + 90 * 2**20
    assert later.usage.memory_bytes < before.usage.memory_bytes + 20 * 2**20


def test_fitting_makes_a_new_start(container_wall):
    fit = "def fit(rows): LISTS.append(len(rows))\n"
    with boxed(container_wall, MODULE + fit) as session:
        ask(session, *["pass"] * 3)
        value(session.fit([b'{"output": ""}'] * 5))
        before, _, later = [
            value(outcome) for outcome in ask(session, "pass", "LISTS.clear()", "assert LISTS[-1] == 5")
        ]
    assert before[1]["lists"] == later[1]["lists"]


@pytest.mark.parametrize("isolation", ["row", "evaluator"])
def test_code_may_open_terminals(container_wall, isolation):
    """Much of what is asked of files is refused, but not what honest code needs."""
    source = "import os\ndef evaluate(output): return [os.isatty(end) for end in os.openpty()]\n"
    with boxed(container_wall, source, isolation=isolation) as session:
        assert value(*ask(session, 1)) == [True, True]
