"""The processes behind the wall of TypeScript: what ends them, what takes their place, and that nothing stays."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from forms import program
from sessions import lines, opened, run, values
from typescript import EVALUATE, RETURN

from evalcell_sandboxes import Confinement, Crashed, Exceeded, Isolation, Returned, SandboxFault

BOTH = pytest.mark.parametrize("isolation", list(Isolation))
MIB = 1024**2


# -- deadlines ------------------------------------------------------------------------------------------------------------
GREEDY = {
    "loop": ("while (true);", "wall_seconds"),
    "microtasks": ("const again = () => Promise.resolve().then(again);\n  return again();", None),  # a chain of them
    "microtasks-left-behind": ("const again = () => { Promise.resolve().then(again); };\n  again();", "wall_seconds"),
    "native-sort": ("Array.from({ length: 3e6 }, (_, n) => String(n * 7919 % 1e6)).sort();", "wall_seconds"),
    "array-buffer": ("return new ArrayBuffer(2e9).byteLength;", "memory_bytes"),
    "typed-arrays": ("for (const kept = []; ; ) kept.push(new Uint8Array(2 ** 20).fill(1));", None),
    "heap": ("for (const kept = []; ; ) kept.push(new Array(1e6).fill(0));", None),
    "small-objects": ("for (const kept = []; ; ) kept.push({ a: [1, 2, 3] });", None),
}


@BOTH
@pytest.mark.parametrize("case", GREEDY)
def test_a_greedy_row_costs_its_own_result_in_time(deno, case, isolation):
    body, limit = GREEDY[case]
    source = f"{EVALUATE}  if (output === 'greedy') {{ {body} }}\n  return output;\n}}\n"
    wall_seconds = 0.5 if limit == "wall_seconds" else 2.0
    started = time.monotonic()
    first, second, greedy, third, fourth = run(
        deno, source, 1, 2, "greedy", 3, 4, isolation=isolation, wall_seconds=wall_seconds, memory_bytes=128 * MIB
    )
    assert time.monotonic() - started < wall_seconds + 4
    assert values([first, second, third, fourth]) == [1, 2, 3, 4]
    assert isinstance(greedy, Exceeded)
    assert greedy.limit in ([limit] if limit else ["memory_bytes", "wall_seconds"])
    assert greedy.usage.wall_seconds < wall_seconds + 1


def test_rows_before_a_loop_stand_and_come_before_it_is_over(deno):
    source = f"{EVALUATE}  while (output === 'loop');\n  return output;\n}}\n"
    with opened(deno, source, isolation="evaluator", wall_seconds=2.0) as session:
        started = time.monotonic()
        running = session.run(lines(1, 2, "loop"))
        assert values([next(running), next(running)]) == [1, 2]
        assert time.monotonic() - started < 1.5
        assert isinstance(next(running), Exceeded)


def test_a_row_that_nobody_takes_any_more_holds_up_nobody_for_longer_than_its_limit(deno):
    source = f"{EVALUATE}  while (output === 'loop');\n  return output;\n}}\n"
    with opened(deno, source, wall_seconds=0.5) as session:
        for _ in range(2):
            assert values([next(session.run(lines(1, "loop", 2)))]) == [1]
            started = time.monotonic()
            assert values(list(session.run(lines(3)))) == [3]
            assert time.monotonic() - started < 3


@BOTH
def test_whoever_left_before_the_last_row_finds_the_next_ones_right(deno, isolation):
    with opened(deno, RETURN, isolation=isolation) as session:
        for n in range(20):
            assert values([next(session.run(lines(*range(n, n + 200))))]) == [n]
        assert values(list(session.run(lines("last")))) == ["last"]


# -- processes that are gone ----------------------------------------------------------------------------------------------
def kill(session) -> None:
    os.kill(session._guest._jail.process.pid, signal.SIGKILL)


def kill_at_rest(session) -> None:
    kill(session)
    time.sleep(0.2)


@BOTH
def test_a_process_that_is_killed_between_rows_is_replaced_and_nobody_fails(deno, isolation):
    source = (
        "let fitted = 0;\nexport function fit(rows) { fitted = rows.length; }\n"
        f"{EVALUATE}  return [output, fitted];\n}}\nexport const aggregate = (results) => fitted;\n"
    )
    with opened(deno, source, isolation=isolation) as session:
        kill_at_rest(session)
        assert values(list(session.run(lines(1, 2)))) == [[1, 0], [2, 0]]
        kill_at_rest(session)
        assert isinstance(session.fit(lines(1, 2, 3)), Returned)
        kill_at_rest(session)
        assert values([session.aggregate(b"[]")]) == [3]
        kill_at_rest(session)
        assert values(list(session.run(lines(3)))) == [[3, 3]]


@BOTH
def test_a_process_that_is_killed_in_a_row_is_that_rows_crash(deno, isolation):
    source = f"{EVALUATE}  while (output === 'wait');\n  return output;\n}}\n"
    with opened(deno, source, isolation=isolation, wall_seconds=10.0) as session:
        timer = threading.Timer(0.5, kill, [session])
        timer.start()
        killed, after = session.run(lines("wait", 2))
        timer.join()
    assert values([after]) == [2]
    assert isinstance(killed, Crashed)
    assert "SIGKILL" in killed.message


def test_a_fresh_row_that_is_killed_after_others_is_run_again(deno):
    source = f"{EVALUATE}  for (const end = Date.now() + 1_000; output === 'slow' && Date.now() < end; );\n  return output;\n}}\n"
    with opened(deno, source, wall_seconds=10.0) as session:
        timer = threading.Timer(0.5, kill, [session])
        timer.start()
        outcomes = list(session.run(lines(1, "slow", 2)))
        timer.join()
    assert values(outcomes) == [1, "slow", 2]
    assert outcomes[1].usage.wall_seconds > 0.9


LEFT_BEHIND = {
    "garbage": ("new Uint8Array(1e8).fill(1);", "new Uint8Array(9e7).fill(1);"),
    "what-is-unhandled": ("Promise.reject(new Uint8Array(1e8).fill(1));", "new Uint8Array(9e7).fill(1);"),
    "and-no-more-is-given": ("Promise.reject(new Uint8Array(1e8).fill(1));", "new ArrayBuffer(24e7);"),
    "symbols": ("for (let n = 0; n < 100; n++) Symbol.for(`${n}`.repeat(3e5));", "new Uint8Array(9e7).fill(1);"),
}


@pytest.mark.parametrize("left", LEFT_BEHIND)
def test_a_fresh_row_never_fails_for_what_rows_before_it_have_left(deno, left):
    """Each takes most of the limit, and there is no time to tidy up in between."""
    much, more = LEFT_BEHIND[left]
    source = f"{EVALUATE}  if (output === 'much') {much}\n  if (output === 'more') {more}\n  return 1;\n}}\n"
    rows = lines(*["much", "more", "little"] * 10)
    with opened(deno, source, memory_bytes=128 * MIB) as session:
        assert all(isinstance(outcome, Returned) for outcome in session.run(rows))
        assert all(isinstance(outcome, Returned) for outcome in session.run(rows))


def test_a_row_that_needs_too_much_memory_says_so_wherever_it_stands(deno):
    source = f"{EVALUATE}  return output && new ArrayBuffer(output).byteLength;\n}}\n"
    outcomes = run(deno, source, 0, 2e9, 0, 2e9, 2e9, 0, memory_bytes=128 * MIB)
    assert [isinstance(outcome, Exceeded) for outcome in outcomes] == [False, True, False, True, True, False]


def test_aggregate_has_all_of_the_memory_that_rows_had(deno):
    source = (
        "export const evaluate = ({ output }) => { Promise.reject(new Uint8Array(3e7).fill(1)); return 1; };\n"
        "export const aggregate = (results) => new Uint8Array(1.2e8).fill(1).length;\n"
    )
    with opened(deno, source, memory_bytes=128 * MIB) as session:
        assert values(list(session.run(lines(1, 2)))) == [1, 1]
        assert values([session.aggregate(b"[]")]) == [1.2e8]


def test_rows_that_leave_much_behind_are_all_right_and_memory_stays_as_it_is(deno):
    source = f"{EVALUATE}  Promise.reject(new Error('x'.repeat(1e4) + output));\n  return output;\n}}\n"
    with opened(deno, source) as session:
        peaks = []
        for start in range(0, 4_000, 1_000):
            outcomes = list(session.run(lines(*range(start, start + 1_000))))
            assert values(outcomes) == list(range(start, start + 1_000))
            peaks.append(max(outcome.usage.memory_bytes or 0 for outcome in outcomes))
    assert peaks[-1] < 512 * MIB
    assert peaks[-1] < 2 * max(peaks[:2])


# -- usage ----------------------------------------------------------------------------------------------------------------
@BOTH
def test_what_a_row_used_is_its_own(deno, isolation):
    source = (
        f"{EVALUATE}  if (output === 'large') return new Uint8Array(1e8).fill(1).length;\n"
        "  for (const end = Date.now() + 400; output === 'slow' && Date.now() < end; );\n  return 1;\n}\n"
    )
    small, slow, large = run(deno, source, "small", "slow", "large", isolation=isolation)
    assert small.usage.wall_seconds < 0.39
    assert 0.39 < slow.usage.wall_seconds < 3
    assert 0.05 < slow.usage.cpu_seconds < 3
    assert small.usage.cpu_seconds < slow.usage.cpu_seconds
    assert large.usage.memory_bytes - small.usage.memory_bytes > 80 * MIB


def test_what_the_other_hooks_used_is_told_too(deno):
    work = "for (const end = Date.now() + 200; Date.now() < end; );"
    source = f"{work}\n{RETURN}export function fit(rows) {{ {work} }}\nexport function aggregate(results) {{ {work} return 1 }}\n"
    with opened(deno, source) as session:
        for outcome in (session.loaded, session.fit(lines(1)), session.aggregate(b"[]")):
            assert 0.19 < outcome.usage.wall_seconds < 3


# -- what stays -----------------------------------------------------------------------------------------------------------
def held() -> tuple[int, int, int]:
    """How many descriptors, threads and children this process has."""
    tasks = Path("/proc/self/task")
    children = sum(len((task / "children").read_text().split()) for task in tasks.iterdir())
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), children


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells what a process holds")
def test_nothing_stays_of_sessions_that_are_closed(deno, plain_limits):
    source = f"{EVALUATE}  while (output === 'loop');\n  return output;\n}}\n"

    def session(n: int) -> None:
        with opened(deno, source, isolation=list(Isolation)[n % 2], wall_seconds=0.3) as opened_session:
            assert values(list(opened_session.run(lines(n)))) == [n]
            if n % 10 == 0:
                list(opened_session.run(lines("loop", n)))
            if n % 10 == 1:
                kill(opened_session)
            if n % 10 == 2:
                next(opened_session.run(lines(*range(100), "loop")))

    session(0)
    deno.describe(RETURN, plain_limits)
    before = held()
    for n in range(50):
        session(n)
        deno.describe(RETURN, plain_limits)
    assert held() == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux tells what a process holds")
def test_nothing_stays_of_a_session_that_cannot_be_opened(deno, monkeypatch):
    from evalcell_sandboxes.deno import process

    with opened(deno, RETURN):
        pass
    before = held()

    def broken(self):
        raise SandboxFault("it was not to be")

    monkeypatch.setattr(process.Guest, "begin", broken)
    with pytest.raises(SandboxFault, match="not to be"), deno.open(program(deno, RETURN), Confinement()):
        pass
    assert held() == before
