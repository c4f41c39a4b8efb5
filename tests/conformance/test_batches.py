"""Many rows in one call: each keeps its own result, deadline, usage and prints, whatever becomes of the others."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from forging import SAY, needs_the_box

from evalcell_sandboxes import (
    Confinement,
    Crashed,
    Exceeded,
    Invalid,
    Isolation,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    Session,
    sandbox,
)
from evalcell_sandboxes.wasm import guests
from evalcell_sandboxes.wasm.session import WasmSession

pytestmark = needs_the_box

EVALUATE = "import answers, calling, os, sys, time\nseen = []\ndef evaluate(output):\n    seen.append(output)\n"


@contextmanager
def opened(source: str, isolation: Isolation = Isolation.EVALUATOR, **limits: Any) -> Iterator[Session]:
    confinement = Confinement(limits=Limits(**{"wall_seconds": 0.5, **limits}), isolation=isolation, seed=7)
    with sandbox("wasm").open(Program(source=source, filename="evaluator.py"), confinement) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        yield session


def lines(*outputs: Any) -> list[bytes]:
    return [json.dumps({"output": output}).encode() for output in outputs]


def run(source: str, *outputs: Any, **options: Any) -> list[Outcome]:
    with opened(source, **options) as session:
        return list(session.run(lines(*outputs)))


def values(outcomes: list[Outcome]) -> list[Any]:
    assert all(isinstance(outcome, Returned) for outcome in outcomes), outcomes
    return [json.loads(outcome.value) for outcome in outcomes]


@pytest.fixture
def calls(monkeypatch) -> list[int]:
    """How many rows each call was given."""
    given: list[int] = []
    run = guests.Guest.run

    def counted(self: guests.Guest, rows: Any, seed_of: Any) -> Any:
        given.append(len(rows))
        return run(self, rows, seed_of)

    monkeypatch.setattr(guests.Guest, "run", counted)
    return given


ENDLESS = {
    "loop": "\n        while True: pass",
    "catching": "\n        while True:\n            try:\n                while True: pass\n            except BaseException: pass",
    "finally": "\n        def again():\n            try:\n                while True: pass\n            finally: again()\n        again()",
    "clock": "\n        while True: time.time()",
    "host": "\n        while True: time.time(); os.urandom(64); os.write(1, b'x'); time.sleep(0)",
    "sleeping": "\n        while True: time.sleep(0.001)",
    "generator": "sum(1 for _ in iter(int, 1))",
    "native": "10 ** 10 ** 8",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("place", [0, 2, 5])
def test_a_row_that_never_ends_costs_its_own_result_and_no_other(calls, body, place):
    outputs: list[Any] = [0, 1, 2, 3, 4, 5]
    outputs[place] = "endless"
    source = EVALUATE + f"    if output == 'endless': {body}\n    return [output, len(seen)]\n"
    started = time.monotonic()
    outcomes = run(source, *outputs, wall_seconds=0.3)
    assert time.monotonic() - started < 3
    ended = outcomes.pop(place)
    assert isinstance(ended, Exceeded)
    assert ended.limit == "wall_seconds"
    assert 0.25 < ended.usage.wall_seconds < 1
    after = 5 - place
    assert values(outcomes) == [[n, n + 1] for n in range(place)] + [
        [output, n + 1] for n, output in enumerate(outputs[place + 1 :])
    ]
    assert calls == [6, after][: 1 + bool(after)]


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize(
    "ending", ["\n        while True: pass", "os._exit(1)", "time.sleep(60)"], ids=["loop", "exit", "sleep"]
)
def test_what_ends_a_call_that_was_told_to_stop_is_the_row_that_did_it(before, ending):
    """Slow rows before it have the call come back early, which it then cannot."""
    source = EVALUATE + f"    if output == 'end': {ending}\n    for _ in range(output): pass\n    return output\n"
    slow = 4_000_000
    *done, ended, after = run(source, *[slow] * before, "end", 1, wall_seconds=2.0)
    assert values([*done, after]) == [slow] * before + [1]
    assert isinstance(ended, Exceeded | Crashed)


def test_a_crash_leaves_the_rows_before_it_and_those_after_it():
    source = (
        EVALUATE
        + "    if output == 'end': os._exit(0)\n    if output == 'raise': raise KeyError(1)\n    return output\n"
    )
    outcomes = run(source, 1, "raise", 2, "end", 3, "end", "end", 4)
    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [Returned, Raised, Returned, Crashed, Returned, Crashed, Crashed, Returned]


def test_a_trap_after_a_report_is_the_row_of_that_report():
    """A row is over only when the call goes on after it."""
    source = (
        EVALUATE + "    if output == 'trap': sys.setprofile(lambda frame, event, arg: os._exit(1)"
        " if event == 'return' and frame.f_code.co_name == '_report' else None)\n    return output\n"
    )
    first, trapped, after = run(source, 1, "trap", 2)
    assert values([first, after]) == [1, 2]
    assert isinstance(trapped, Crashed)


def test_every_row_of_a_call_has_the_whole_limit_to_itself():
    source = EVALUATE + "    time.sleep(output)\n    return output\n"
    outcomes = run(source, *[0.4] * 6, 0.6, *[0.4] * 3)
    assert values([*outcomes[:6], *outcomes[7:]]) == [0.4] * 9
    assert isinstance(outcomes[6], Exceeded)


def test_slept_time_is_of_the_row_that_slept():
    source = EVALUATE + "    time.sleep(output)\n    return time.time()\n"
    sleeps = [0, 0.3, 0, 0, 0.2, 0.001, 0, 0.4, 0]
    outcomes = run(source, *sleeps)
    for outcome, slept in zip(outcomes, sleeps, strict=True):
        assert slept <= outcome.usage.wall_seconds < slept + 0.1
    assert values(outcomes) == sorted(values(outcomes))


def test_the_usage_of_a_slow_row_is_its_own(calls):
    source = EVALUATE + "    for _ in range(output): pass\n    return output\n"
    outputs = [10, 10, 4_000_000, 10, 10, 10]
    outcomes = run(source, *outputs, wall_seconds=5.0)
    walls = [outcome.usage.wall_seconds for outcome in outcomes]
    slow = walls.pop(2)
    assert slow > 0.05
    assert max(walls) < 0.05
    assert max(walls) < slow / 2
    assert all(0 <= outcome.usage.cpu_seconds <= outcome.usage.wall_seconds + 0.05 for outcome in outcomes)


def test_the_usage_of_all_rows_is_what_the_call_took():
    with opened(EVALUATE + "    for _ in range(20_000): pass\n    return output\n") as session:
        started = time.perf_counter()
        outcomes = list(session.run(lines(*range(100))))
        took = time.perf_counter() - started
    assert values(outcomes) == list(range(100))
    assert 0.5 * took < sum(outcome.usage.wall_seconds for outcome in outcomes) <= took


def test_prints_are_of_the_row_that_printed(calls):
    source = EVALUATE + (
        "    if output % 3 == 0: os.write(1, b'raw %d' % output)\n    if output % 5 == 0: os.write(2, b'err %d' % output)\n"
        "    if output % 2 == 0: print('said', output)\n    return output\n"
    )
    outcomes = run(source, *range(60))
    assert calls == [60]
    for n, outcome in enumerate(outcomes):
        assert outcome.stdout == (f"said {n}\n" if n % 2 == 0 else "") + (f"raw {n}" if n % 3 == 0 else "")
        assert outcome.stderr == (f"err {n}" if n % 5 == 0 else "")


def test_slow_rows_are_passed_on_in_time_and_quick_ones_in_one_call(calls):
    source = EVALUATE + "    for _ in range(output): pass\n    return len(seen)\n"
    with opened(source, wall_seconds=5.0) as session:
        running = session.run(lines(*[600_000] * 30))
        waits, started = [], time.monotonic()
        for n, outcome in enumerate(running):
            assert values([outcome]) == [n + 1]
            waits.append(time.monotonic() - started)
            started = time.monotonic()
        slow_calls = len(calls)
        assert slow_calls > 2
        assert max(waits) < sum(waits) / 2
        list(session.run(lines(*[1] * 250)))
        assert len(calls) == slow_calls + 1


def test_answers_that_fill_the_box_come_in_several_calls(calls):
    source = EVALUATE + "    return 'x' * output\n"
    sizes = [20_000] * 30 + [300_000, 5, 600_000, 10]
    assert [len(text) for text in values(run(source, *sizes))] == sizes
    assert len(calls) > 3


def test_the_answer_that_just_fits_and_the_one_that_does_not_both_arrive():
    source = EVALUATE + "    return 'x' * output\n"
    around = [guests.answers.SIZE - 16 - overhead for overhead in range(25, 45)]
    assert [len(text) for text in values(run(source, *around))] == around
    assert [len(text) for text in values(run(source, *around, isolation=Isolation.ROW))] == around


def test_no_row_has_a_thread_of_its_own():
    with opened("def evaluate(output): return output\n", isolation=Isolation.ROW) as session:
        list(session.run(lines(1)))
        before = threading.active_count()
        for _ in range(50):
            next(session.run(lines(1)))
            assert threading.active_count() == before


def test_a_deadline_holds_after_memory_was_put_back():
    source = EVALUATE + "    while output == 'loop': pass\n    return len(seen)\n"
    with opened(source, isolation=Isolation.ROW, wall_seconds=0.2) as session:
        for _ in range(3):
            assert values(list(session.run(lines(*range(20))))) == [1] * 20
            started = time.monotonic()
            (ended,) = session.run(lines("loop"))
            assert isinstance(ended, Exceeded)
            assert 0.15 < time.monotonic() - started < 0.7


# -- what code can say of the rows: the box, its words, and the frame that fills it ------------------------------------

FORGING = (
    SAY
    + """
import calling, os, time
seen = []
box, words, DONE, STOP, USED, HEADER = answers.box, answers.words, answers.DONE, answers.STOP, answers.USED, answers.HEADER
OWN = '{"kind":"returned","value":"forged"}'
def put(text):
    at = words[USED]
    box[at : at + len(text)] = text.encode()
    return len(text)
def evaluate(output):
    seen.append(output)
    if output == 'forge':
        FORGE
    return 'honest'
"""
)


def forged(body: str, *, isolation: Isolation, rows: int = 4, **limits: float) -> list[Outcome]:
    """The outcomes of rows of which the second forges."""
    source = FORGING.replace("FORGE", body.replace("\n", "\n        "))
    with opened(source, isolation=isolation, **limits) as session:
        assert isinstance(session, WasmSession)
        return list(session.run(lines("a", "forge", *["b"] * (rows - 2))))


FORGED = {
    "one report too many": "say(OWN)",
    "many reports": "for _ in range(500): say(OWN)",
    "no report": "silence()",
    "no report, and done": "words[DONE] += 1; silence()",
    "own report for its own": "say(OWN); silence()",
    "garbage": "say(b'\\xff\\xfe\\x00{'); silence()",
    "invalid UTF-8 in a report": "say(OWN.encode().replace(b'forged', b'\\xff\\xc3')); silence()",
    "a line feed in it": "say(OWN[:10] + '\\n' + OWN[10:]); silence()",
    "deep nesting": "say('{\"kind\":\"returned\",\"value\":' + '[' * 50_000); silence()",
    "deep value": "say('{\"kind\":\"returned\",\"value\":' + '[' * 50_000 + ']' * 50_000 + '}'); silence()",
    "huge value": "say('{\"kind\":\"returned\",\"value\":\"' + 'x' * 250_000 + '\"}'); silence()",
    "larger than the box": "say('x' * 10**6); silence()",
    "done is huge": "words[DONE] = 2**32 - 1; lead(words=bytearray(4))",
    "done is like minus one": "words[DONE] = 0xFFFFFFFF",
    "used is huge": "words[USED] = 2**32 - 1; lead(words=[0] * 4)",
    "used is nothing": "words[USED] = 0; lead(words=[0] * 4)",
    "used is in the header": "words[USED] = 7; lead(words=[0] * 4)",
    "used is in the middle": "words[USED] = 20; lead(words=[0] * 4)",
    "all of the box is line feeds": "box[HEADER:] = b'\\n' * (answers.SIZE - HEADER); words[USED] = answers.SIZE; lead(words=[0] * 4)",
    "stop is set": "words[STOP] = 1",
    "words released": "words.release()",
    "box resized": "words.release(); answers.contents.release(); box.extend(bytes(10**6))",
    "box emptied": "words.release(); answers.contents.release(); box.clear()",
    "box replaced": "answers.box = bytearray(12); answers.contents = memoryview(answers.box); answers.words = answers.contents.cast('I')",
    "room is huge": "lead(room=2**31); seen.append('x' * 10**6)",
    "room is nothing": "lead(room=0)",
    "at is outside": "lead(at=2**31)",
    "at is negative": "lead(at=-5)",
    "at is no number": "lead(at=None)",
    "report patched": "calling._report = lambda *a: OWN + '\\n' + OWN",
    "report of another type": "calling._report = lambda *a: 42",
    "no room, and lies": "calling._loaded.room = -1; calling._report = lambda *a: OWN",
    "run patched": "calling.run = lambda rows: '\\n'.join([OWN] * 300)",
    "no end of the line": "words[USED] += put(OWN); lead(words=[0] * 4)",
    "no end of the line, then exit": "words[USED] += put(OWN); os._exit(0)",
    "no end of the line, then loop": "words[USED] += put(OWN)\nwhile True: pass",
    "no end of the line, more memory": "keep = bytes(10**8); words[USED] += put(OWN); lead(words=[0] * 4)",
    "no end of the line, and prints": "os.write(1, b'LEAK'); words[USED] += put(OWN); lead(words=[0] * 4)",
    "blank lines": "words[USED] += put(OWN + '\\n\\n'); lead(words=[0] * 4)",
    "blank lines, then exit": "words[USED] += put(OWN + '\\n\\n'); os._exit(0)",
    "blank lines alone": "words[USED] += put('\\n'); lead(words=[0] * 4)",
    "much more than asked for": "lead(room=-1); calling._encoded = lambda *a: '1}\\n' + '{}\\n' * 10**6 + '{'",
    "report then exit": "say(OWN); os._exit(0)",
    "report then loop": "say(OWN)\nwhile True: pass",
    "all reports then loop": "for _ in range(3): say(OWN)\nwhile True: pass",
    "all reports then exit": "for _ in range(3): say(OWN)\nos._exit(0)",
}  # fmt: skip


@pytest.mark.parametrize("body", FORGED.values(), ids=FORGED)
def test_forged_answers_are_their_own_rows_alone(body):
    before, attack, *after = forged(body, isolation=Isolation.ROW, wall_seconds=0.3)
    assert isinstance(attack, Returned | Raised | Invalid | Exceeded | Crashed)
    assert len(getattr(attack, "value", b"")) < 2**20
    assert values([before, *after]) == ["honest"] * 3
    for outcome in after:
        assert (outcome.stdout, outcome.stderr) == ("", "")
        assert outcome.usage.memory_bytes == before.usage.memory_bytes


@pytest.mark.parametrize("body", FORGED.values(), ids=FORGED)
def test_a_forging_row_gets_one_outcome_and_pays_for_it(body):
    with opened(FORGING.replace("FORGE", body.replace("\n", "\n        ")), isolation=Isolation.ROW) as session:
        (outcome,) = session.run(lines("forge"))
    assert outcome.usage.wall_seconds > 0


@pytest.mark.parametrize("body", FORGED.values(), ids=FORGED)
def test_where_rows_share_state_forged_answers_are_outcomes_too_and_one_a_row(body):
    started = time.monotonic()
    outcomes = forged(body, isolation=Isolation.EVALUATOR, rows=6, wall_seconds=0.3)
    assert time.monotonic() - started < 6 * 0.3 + 2
    assert len(outcomes) == 6
    assert all(isinstance(outcome, Returned | Raised | Invalid | Exceeded | Crashed) for outcome in outcomes)


def test_the_forgeries_reach_the_host():
    """The control: a row is believed about itself, and where rows share state about those that it shares it with."""
    _, attack, *_ = forged(FORGED["own report for its own"], isolation=Isolation.ROW)
    assert values([attack]) == ["forged"]
    patched = forged("calling._report = lambda *a: OWN", isolation=Isolation.EVALUATOR)
    assert values(patched) == ["honest", "honest", "forged", "forged"]


@pytest.mark.parametrize(
    "body", ["say(OWN)\nwhile True: pass", "say(OWN); os._exit(0)", "for _ in range(9): say(OWN)\nwhile True: pass"]
)
def test_a_report_does_not_excuse_what_comes_after_it(body):
    _, attack, *_ = forged(body, isolation=Isolation.ROW, wall_seconds=0.3)
    assert isinstance(attack, Exceeded | Crashed | Invalid)


def test_more_answers_than_rows_cost_the_host_next_to_nothing():
    body = "lead(room=-1); calling._encoded = lambda *a: '1}\\n' + '{}\\n' * 10**7 + '{'"
    started = time.monotonic()
    _, attack, *after = forged(body, isolation=Isolation.ROW, wall_seconds=5.0)
    assert time.monotonic() - started < 4
    assert isinstance(attack, Invalid)
    assert values(after) == ["honest"] * 2


def test_rows_of_a_call_that_comes_after_a_pause_are_their_own():
    """The clock may look at the guest before it has begun: what the call before it said is not this one's."""
    source = "import os, time\ndef evaluate(output):\n    time.sleep(0.2); os.write(1, b'row %d' % output)\n    return os.urandom(8).hex()\n"
    with opened(source, isolation=Isolation.ROW) as session:
        alone = list(session.run(lines(*range(12))))
    with opened(source) as session:
        for first in (0, 4, 8):
            for row, outcome in enumerate(session.run(lines(*range(first, first + 4))), first):
                assert (outcome.value, outcome.stdout) == (alone[row].value, f"row {row}")
                assert 0.2 < outcome.usage.wall_seconds < 0.3
            time.sleep(0.05)


def test_answers_of_the_call_before_are_not_those_of_one_that_could_not_begin():
    source = "kept = []\ndef evaluate(output):\n    if output == 'hog':\n        try:\n            while True: kept.append(bytes(10**6))\n        except MemoryError: pass\n    return len(output)\n"
    with opened(source, wall_seconds=10.0, memory_bytes=128 * 2**20) as session:
        assert values(list(session.run(lines("aaaa", "hog")))) == [4, 3]
        first, *rest = session.run(lines("x" * 5_000_000, "y" * 5_000_000, "zz"))
    assert not isinstance(first, Returned) or json.loads(first.value) == 5_000_000
    assert [outcome.value for outcome in rest if isinstance(outcome, Returned)] in ([b"2"], [b"5000000", b"2"], [])


EARLY = {
    "at once": "words[DONE] = 1\nwhile True: pass",
    "again and again": "while True: words[DONE] = 1",
    "on and off": "while True: words[DONE] ^= 1",
    "counting": "while True: words[DONE] = (words[DONE] + 1) % 1000",
    "out of range": "while True: words[DONE] = 2**32 - 1",
    "with a report": "say(OWN)\nwhile True: pass",
}


@pytest.mark.parametrize("early", EARLY.values(), ids=EARLY)
@pytest.mark.parametrize("slept", [0, 0.8])
def test_saying_that_it_is_done_gives_a_row_no_more_time(early, slept):
    """Alone in its call it has its own limit and no other, whenever it says so."""
    body = f"time.sleep({slept})\n{early}".replace("\n", "\n        ")
    with opened(FORGING.replace("FORGE", body), isolation=Isolation.ROW, wall_seconds=1.0) as session:
        started = time.monotonic()
        (ended,) = session.run(lines("forge"))
        assert time.monotonic() - started < 1.0 - slept + 0.3
    assert isinstance(ended, Exceeded)


def test_running_ahead_in_a_call_gains_no_more_than_the_time_of_its_rows():
    """A row may take the time of those it shares its call with, and must then pay with their results."""
    rows, wall = 4, 0.3
    body = "n = 0\nwhile True:\n    n += 1\n    if n % 100_000 == 0: words[DONE] += 1"
    with opened(FORGING.replace("FORGE", body.replace("\n", "\n        ")), wall_seconds=wall) as session:
        started = time.monotonic()
        first = next(session.run(lines(*["forge"] * rows)))
        assert time.monotonic() - started < rows * wall + 0.5
    assert isinstance(first, Exceeded | Invalid)


def test_a_call_that_is_told_to_stop_and_does_not_still_gives_one_outcome_a_row():
    deaf = "    for _ in range(300_000): words[STOP] = 0\n    return len(seen)"
    source = FORGING.replace("FORGE", "pass").replace("    return 'honest'", deaf)
    with opened(source, wall_seconds=5.0) as session:
        assert values(list(session.run(lines(*range(12))))) == list(range(1, 13))


WRITES = EVALUATE + "    os.write(1, bytes(4096))\n"


@pytest.mark.parametrize(("much", "sizes"), [(4 * 4096, [5, 5, 2]), (10**9, [12])])
def test_rows_that_write_much_do_not_share_a_call(monkeypatch, much, sizes):
    """What went to the raw descriptors is held until the call comes back. The control: a bound that is never met."""
    monkeypatch.setattr(guests, "_CALL_SECONDS", 60.0)
    monkeypatch.setattr(guests, "_MUCH_OUTPUT_BYTES", much)
    with opened(WRITES + "    return 1\n", wall_seconds=5.0) as session:
        bursts = list(session.bursts(lines(*range(12))))
    assert [len(burst) for burst in bursts] == sizes
    assert all(len(outcome.stdout) == 4096 for burst in bursts for outcome in burst)


def test_rows_that_write_much_and_do_not_come_back_lose_what_they_wrote(monkeypatch):
    monkeypatch.setattr(guests, "_CALL_SECONDS", 60.0)
    monkeypatch.setattr(guests, "_MUCH_OUTPUT_BYTES", 4 * 4096)
    body = "    answers.words[answers.STOP] = 0\n    return 1\n"
    outcomes = run(WRITES + body, *range(12), wall_seconds=5.0)
    assert values(outcomes) == [1] * 12
    assert [len(outcome.stdout) for outcome in outcomes] == [4096] * 5 + [0] * 7
