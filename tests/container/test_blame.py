"""What a guest does is the guest's fault: nothing of it ends PID 1, reaches another container, or passes for ours."""

import threading

import pytest
from boxed import ask, boxed, value

from evalcell_sandboxes import Crashed, Exceeded, Isolation, Returned

NAMED = """
import ctypes, os, time
def evaluate(output):
    if output == "attack":
        ctypes.CDLL(None).prctl(15, b"\\xff) Z \\xfe", 0, 0, 0)
        if not os.fork(): time.sleep(60)
        while True: pass
    return output
"""

WITHOUT_AN_OWNER = """
import os, sys
FILL = '''
import os, socket, time
open("/proc/self/oom_score_adj", "w").write("0")
data, kept = bytes(1 << 16), []
for _ in range(6):
    if not os.fork(): break
while True:
    pair = socket.socketpair()
    kept += pair
    for end in pair:
        end.setblocking(False)
        try:
            while True: end.send(data)
        except OSError: pass
'''
def evaluate(output):
    if output == "attack":  # by a child: a row that is another program itself is ended before memory has to run out
        if not os.fork(): os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", FILL])
        os.wait()
    return output
"""

IN_FLIGHT = """
import array, socket, time
def evaluate(output):
    kept, sent = [], 0
    try:
        for _ in range(200):
            pair = socket.socketpair()
            kept += pair
            pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 250))])
            sent += 250
    except OSError:
        time.sleep(output)
    return sent
"""


@pytest.mark.parametrize("isolation", [str(isolation) for isolation in Isolation])
def test_a_process_may_call_itself_what_it_likes(container_wall, isolation):
    with boxed(container_wall, NAMED, isolation=isolation, wall_seconds=0.5) as session:
        before, attack, after = ask(session, 1, "attack", 2)
    assert isinstance(attack, Exceeded)
    assert [value(before), value(after)] == [1, 2]


def test_memory_that_belongs_to_no_process_is_the_rows_even_if_it_costs_the_container(container_wall):
    with boxed(container_wall, WITHOUT_AN_OWNER, wall_seconds=10.0, memory_bytes=128 * 1024**2) as session:
        before, attack, after = ask(session, 1, "attack", 2)
    assert isinstance(attack, Exceeded)
    assert attack.limit == "memory_bytes"
    assert [value(before), value(after)] == [1, 2]


def test_what_the_kernel_counts_for_a_user_one_container_cannot_use_up_for_another(container_wall):
    """The control is the attacker, who does run into the kernel's limit for its own user."""
    sent = []

    def attack() -> None:
        with boxed(container_wall, IN_FLIGHT, wall_seconds=10.0) as session:
            sent.extend(map(value, ask(session, 2)))

    with boxed(container_wall, "def evaluate(output):\n    return output\n") as session:
        attacker = threading.Thread(target=attack)
        attacker.start()
        while attacker.is_alive():
            assert [value(outcome) for outcome in ask(session, 1, 2)] == [1, 2]
    assert 0 < sent[0] < 50_000


@pytest.mark.parametrize("megabytes", [40, 100])
def test_large_arguments_are_served_or_too_much_for_their_row(container_wall, megabytes):
    source = (
        "def fit(rows): pass\ndef evaluate(output): return len(output)\ndef aggregate(results): return len(results)\n"
    )
    text = "x" * (megabytes * 10**6)
    with boxed(container_wall, source, wall_seconds=30.0, memory_bytes=256 * 1024**2) as session:
        (row,) = ask(session, text)
        fitted = session.fit([b'{"output": "%s"}' % text.encode()])
        aggregated = session.aggregate(b'["%s"]' % text.encode())
        (after,) = ask(session, "next") if isinstance(fitted, Returned) else (fitted,)
    for outcome in (row, fitted, aggregated, after):
        assert isinstance(outcome, Returned | Exceeded), outcome
        assert not isinstance(outcome, Exceeded) or outcome.limit == "memory_bytes"
    if megabytes == 40:
        assert value(row) == 40 * 10**6


def test_a_batch_that_is_too_slow_is_run_row_by_row_and_nobody_waits_in_vain(container_wall):
    source = (
        "import time\ndef evaluate(output): return output\n"
        "def evaluate_batch(rows):\n    time.sleep(0.1 * len(rows))\n    return [row['output'] for row in rows]\n"
    )
    with boxed(container_wall, source, isolation="evaluator", wall_seconds=1.0) as session:
        assert [value(outcome) for outcome in ask(session, *range(30))] == list(range(30))


HELPERS = """
import os, time
def evaluate(output):
    if output == "exit": os._exit(3)
    if output == "hang": time.sleep(100)
    if output != "helpers": return output
    children = []
    for _ in range(3):
        children.append(os.fork())
        if not children[-1]:
            held = bytearray(200 << 20)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(2)
            os._exit(0)
    return [os.waitpid(child, 0)[1] for child in children]
"""


@pytest.mark.parametrize(("output", "kind"), [("exit", Crashed), ("hang", Exceeded)])
def test_a_process_that_memory_ran_out_for_is_not_held_against_a_later_row(container_wall, output, kind):
    with boxed(container_wall, HELPERS, isolation="evaluator", wall_seconds=5.0, memory_bytes=256 * 1024**2) as session:
        assert 9 in value(*ask(session, "helpers")), "none of the helpers was killed, so this proves nothing"
        (later,) = ask(session, output)
    assert isinstance(later, kind)
    assert getattr(later, "limit", "wall_seconds") == "wall_seconds"
