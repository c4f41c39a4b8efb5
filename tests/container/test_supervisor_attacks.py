"""Rows that turn on those who run them: process 1 and the process they are forked from."""

import time

import pytest
from boxed import ask, boxed, value
from hostile import WORLD, in_the_open, rows_that
from walls import CONTAINERS, on_gvisor, wall_of

from evalcell_sandboxes import Crashed, Exceeded, Invalid, Raised, Returned

WALL_SECONDS = 0.5
GRACE_SECONDS = 2.0
_ANY_SIGNAL = """
for victim in victims():
    for number in {numbers}:
        try: os.kill(victim, number)
        except OSError: pass
return True
"""


@pytest.fixture(scope="module", params=CONTAINERS)
def container_wall(request):
    """On every engine."""
    return wall_of(request)


def attacked(wall, source, *, isolation="row", memory_bytes=256 * 1024**2, wall_seconds=WALL_SECONDS):
    """The outcome of a hostile row. It comes in time, and the row after it finds the world as it should be."""
    with boxed(
        wall, source, isolation=isolation, wall_seconds=wall_seconds, load_seconds=5.0, memory_bytes=memory_bytes
    ) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        assert value(*ask(session, "world")) == WORLD
        started = time.monotonic()
        (outcome,) = ask(session, "attack")
        assert time.monotonic() - started < wall_seconds + GRACE_SECONDS
        started = time.monotonic()
        assert [value(after) for after in ask(session, "world", "world")] == [WORLD] * 2
        assert time.monotonic() - started < GRACE_SECONDS
    return outcome


# -- what must not be reached ------------------------------------------------------------------------------------------

REACHES = {
    "memory": "open(f'/proc/{victim}/mem', 'r+b')",
    "descriptors": "os.listdir(f'/proc/{victim}/fd')",
    "environment": "open(f'/proc/{victim}/environ').read()",
    "maps": "open(f'/proc/{victim}/maps').read()",
    "root": "os.listdir(f'/proc/{victim}/root')",
    "limits": "resource.prlimit(victim, resource.RLIMIT_NOFILE, (10, 10))",
    "affinity": "os.sched_setaffinity(victim, os.sched_getaffinity(victim))",
    "scheduler": "os.sched_setscheduler(victim, os.SCHED_BATCH, os.sched_param(0))",
    "priority": "os.setpriority(os.PRIO_PROCESS, victim, 19)",
    "turn-to-be-killed": "open(f'/proc/{victim}/oom_score_adj', 'w').write('1000')",
    "name": "open(f'/proc/{victim}/comm', 'w').write('bent')",
}


_TRY_ALL = f"""
reached = []
for name, what in {REACHES!r}.items():
    for victim in victims()[:2 if name == "maps" else None]:  # of the third, they are its own
        try: eval(what, globals(), {{"victim": victim}})
        except PermissionError: continue
        reached.append(name)
        break
if ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0: reached.append("itself")
return ",".join(reached)
"""


def test_nobody_gets_hold_of_those_who_run_rows(container_wall):
    """Neither of them, nor of itself: no process can be looked into again that was shut."""
    shown = "descriptors,environment,maps" if on_gvisor(container_wall) else ""  # which test_gvisor.py looks into
    assert value(attacked(container_wall, rows_that(_TRY_ALL))) == shown
    reached, lives = in_the_open(_TRY_ALL.replace("return ", "return __import__('json').dumps(").rstrip() + ")")
    assert reached.split(",") == [*REACHES, "itself"]
    assert lives


# -- what must not be ended --------------------------------------------------------------------------------------------

DEADLY = {
    "interrupt": [2],
    "terminate": [15],
    "kill": [9],
    "stop": [19],
    "all-but-kill": [number for number in range(1, 65) if number not in (9, 19)],
    "all": list(range(1, 65)),
}


@pytest.mark.parametrize("numbers", DEADLY.values(), ids=DEADLY)
def test_no_signal_costs_more_than_its_row(container_wall, numbers):
    body = _ANY_SIGNAL.format(numbers=numbers)
    outcome = attacked(container_wall, rows_that(body))
    assert isinstance(outcome, Returned | Invalid | Crashed), outcome
    assert in_the_open(body)[1] is False


HARMS = {
    "kill-everybody": ("os.kill(-1, 9)\nreturn 1", Returned),
    "kill-everybody-and-wait": ("os.kill(-1, 9)\ntime.sleep(100)", Exceeded),
    "stop-all-others-and-wait": ("for victim in victims(): os.kill(victim, signal.SIGSTOP)\nwhile True: pass", Exceeded),
    "stop-all-others-and-go-on": ("for victim in victims(): os.kill(victim, signal.SIGSTOP)\nreturn 1", Returned | Crashed),
    "wake-all-others": ("for number in (signal.SIGSTOP, signal.SIGCONT):\n    for victim in victims(): os.kill(victim, number)\nreturn 1", Returned),
    "stop-itself": ("os.kill(os.getpid(), signal.SIGSTOP)", Exceeded),
    "ignore-signals": ("daemon(lambda: time.sleep(1)); return 1", Returned),
    "daemon-that-writes": ("daemon(lambda: (time.sleep(0.001), open('/tmp/late', 'a').write('x'))); return 1", Returned),
    "daemon-that-speaks": ("daemon(lambda: [os.write(d, record(b'99')) for d in sockets(socket.SOCK_STREAM)]); return 1", Returned | Invalid),
    "child-that-keeps-the-socket": ("if os.fork() == 0: time.sleep(100)\nreturn 1", Returned | Invalid),
    "process-without-its-first-thread": ("if os.fork() == 0:\n    threading.Thread(target=time.sleep, args=(100,)).start()\n    ctypes.CDLL(None).pthread_exit(None)\nreturn 1", Returned | Invalid),
    "execute": ("os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])", Crashed),
    "execute-and-wait": ("os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(100)'])", Exceeded | Crashed),
    "speak-everywhere": ("for d in range(256):\n    try: os.write(d, record(b'99'))\n    except OSError: pass\nreturn 1", Invalid),
    "speak-nonsense": ("for d in sockets(socket.SOCK_STREAM): os.write(d, b'\\xff' * 1000)\nreturn 1", Invalid),
    "announce-gigabytes": ("for d in sockets(socket.SOCK_STREAM): os.write(d, struct.pack('!BddQIII', 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, 0))\ntime.sleep(100)", Invalid),
    "speak-as-the-supervisor": ("for d in sockets(socket.SOCK_STREAM): os.write(d, struct.pack('!BddQIII', 4, 0, 0, 0, 0, 0, 0))\nos._exit(0)", Invalid),
    "close-everything-and-go-on": ("os.closerange(0, 1024)\nwhile True: pass", Crashed),
    "fork-bomb": ("while True:\n    try: os.fork()\n    except OSError: pass", Exceeded | Crashed),
    "thread-bomb": ("while True:\n    try: threading.Thread(target=time.sleep, args=(100,)).start()\n    except RuntimeError: pass", Exceeded | Raised),
    "memory-of-many": ("for _ in range(20):\n    if os.fork() == 0:\n        kept = [bytearray(2**20) for _ in range(200)]\n        time.sleep(100)\ntime.sleep(100)", Exceeded),
    "print-for-ever": ("while True: print('x' * 10_000)", Exceeded),
    "write-for-ever": ("while True:\n    try: os.write(1, b'x' * 10_000)\n    except OSError: pass", Exceeded),
}  # fmt: skip


REFUSED_BY_GVISOR = ("stop-all-others-and-wait", "stop-all-others-and-go-on", "wake-all-others")
"""There process 1 is somebody else's, and cannot be sent signals at all."""


@pytest.mark.parametrize("name", HARMS)
def test_harm_costs_its_own_row(container_wall, name):
    body, kind = HARMS[name]
    outcome = attacked(container_wall, rows_that(body))
    if on_gvisor(container_wall) and name in REFUSED_BY_GVISOR:
        assert isinstance(outcome, Raised), outcome
        assert outcome.exception == "PermissionError"
    else:
        assert isinstance(outcome, kind), outcome


def test_memory_that_many_processes_use_up_is_the_rows(container_wall):
    outcome = attacked(container_wall, rows_that(HARMS["memory-of-many"][0]), wall_seconds=3.0)
    assert isinstance(outcome, Exceeded)
    assert outcome.limit == "memory_bytes"


LITTER = {
    "bytes": "with open('/tmp/x', 'wb', 0) as file:\n    try:\n        while True: file.write(bytes(2**20))\n    except OSError: return file.tell() > 60 * 2**20",
    "many-files-of-bytes": "for n in range(100):\n    try: open(f'/tmp/{n}', 'wb', 0).write(bytes(2**20))\n    except OSError: return n > 60",
    "files": "return fill() > 9_000",
    "shut": "os.makedirs('/tmp/a/b/c'); open('/tmp/a/b/c/file', 'w').write('x')\nfor path in ('a/b/c', 'a/b', 'a'): os.chmod(f'/tmp/{path}', 0)\nreturn True",
    "deep": "os.chdir('/tmp')\nfor _ in range(3_000): os.mkdir('ddd'); os.chdir('ddd')\nreturn True",
    "names": "for name in (b'\\xff\\xfe', b'a\\nb', b' ', b'-rf', b'x' * 255): open(b'/tmp/' + name, 'w').close()\nreturn True",
    "links": "os.symlink('/', '/tmp/root'); os.symlink('/tmp/root', '/tmp/again'); os.symlink('loop', '/tmp/loop'); return True",
    "specials": "os.mkfifo('/tmp/pipe'); socket.socket(socket.AF_UNIX).bind('/tmp/socket'); return True",
}  # fmt: skip


def litter(wall, name):
    """A source that leaves things in /tmp."""
    if name == "files" and on_gvisor(wall):
        pytest.skip("gVisor does not count files: they take up memory until that runs out")
    return rows_that(LITTER[name])


@pytest.mark.parametrize("name", LITTER)
def test_what_a_row_leaves_in_its_directory_is_gone(container_wall, name):
    assert value(attacked(container_wall, litter(container_wall, name), wall_seconds=3.0)) is True


@pytest.mark.parametrize("what", ["files", "deep", "shut"])
def test_what_rows_that_share_state_leave_is_gone_when_they_are_done(container_wall, what):
    source = litter(container_wall, what) + "\ndef aggregate(results): return os.listdir('/tmp')\n"
    with boxed(container_wall, source, isolation="evaluator") as session:
        assert value(*ask(session, "attack")) is True
        assert value(session.aggregate(b"[]")) == []


# -- what is said of a row ---------------------------------------------------------------------------------------------


def test_measures_that_are_no_numbers_reach_no_record(score):
    """Whoever runs in the row's process may say what the row has used, but it must be something to add up."""
    body = "for d in sockets(socket.SOCK_STREAM): os.write(d, record(b'0.5', float('nan'), float('inf'), 2**64 - 1))\nos._exit(0)"
    scored = score(rows_that(body), [{"output": "attack"}] * 3, sandbox="container")
    assert [record.score for record in scored.records] == [0.5] * 3
    for record in scored.records:
        assert 0 <= record.usage.wall_seconds + record.usage.cpu_seconds < 10**6
        assert record.usage.memory_bytes < 2**53


@pytest.mark.parametrize("place", ["os.open(os.devnull, os.O_RDWR)", "os.pipe()[1]"], ids=["device", "pipe"])
def test_a_row_that_replaces_its_stdout_is_scored(container_wall, place):
    body = f"os.set_blocking(where := {place}, False)\nos.dup2(where, 1)\nfor _ in range(100): print('x' * 10_000)\nreturn 5"
    assert value(attacked(container_wall, rows_that(body))) == 5
