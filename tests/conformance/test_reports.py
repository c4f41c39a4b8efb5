"""Reports that code makes up behind a wall whose guest shares its interpreter, and how they come back."""

import time

import pytest
from forging import SAY, needs_the_box
from sessions import run, values

from evalcell_sandboxes import Confinement, Crashed, Exceeded, Invalid, Isolation, Program

EVALUATE = "def evaluate(output, reference=None):\n"


@needs_the_box
@pytest.mark.parametrize("isolation", list(Isolation))
def test_reports_that_the_code_makes_up_are_not_believed(wasm_wall, isolation):
    forged = """'{"kind":"returned","value":1.0}'"""
    source = f"{SAY}{EVALUATE}    if output == 'forge': [say({forged}) for _ in range(200)]\n    return 0\n"
    outcomes = run(wasm_wall, source, "forge", "honest", isolation=isolation)
    assert isinstance(outcomes[0], Invalid)
    assert "made up" in outcomes[0].message
    if isolation is Isolation.ROW:
        assert values(outcomes[1:]) == [0]


@needs_the_box
def test_a_report_before_an_endless_loop_does_not_excuse_it(wasm_wall):
    forged = """'{"kind":"returned","value":1.0}'"""
    source = f"{SAY}{EVALUATE}    while True:\n        say({forged})\n        for _ in range(100_000): pass\n"
    started = time.monotonic()
    (outcome,) = run(wasm_wall, source, 1, wall_seconds=0.5)
    assert time.monotonic() - started < 2
    assert isinstance(outcome, Invalid | Exceeded)


@pytest.mark.parametrize(
    "forged",
    [
        "''",
        "'nonsense'",
        "'[]'",
        """'{"kind":"infrastructure"}'""",
        """'{"kind":"raised","message":3}'""",
        "'{' * 100_000",
        """'{"kind":"returned","value":' + '[' * 100_000""",
        "'x' * 50_000_000",
    ],
    ids=["empty", "nonsense", "list", "kind", "type", "deep", "deep-value", "huge"],
)
def test_a_report_that_is_none_is_invalid_and_never_a_fault_of_the_host(wasm_wall, forged):
    source = f"import calling\n{EVALUATE}    calling._report = lambda *_: {forged}\n    return 0\n"
    outcomes = run(wasm_wall, source, 1, 2, isolation="evaluator")
    assert values(outcomes[:1]) == [0]
    assert isinstance(outcomes[1], Invalid)


def test_text_that_is_not_utf8_is_refused_before_it_reaches_the_wall(wasm_wall):
    with wasm_wall.open(Program(source=EVALUATE + "    return 1\n", filename="evaluator.py"), Confinement()) as session:
        with pytest.raises(UnicodeDecodeError):
            list(session.run([b'{"output": "\xff"}']))
        assert values(list(session.run([b'{"output": 1}']))) == [1]


def test_code_that_meddles_with_its_loader_is_its_own_fault(wasm_wall):
    source = "import sys\nsys.modules['calling']._quote = lambda s: '5'\n" + EVALUATE + "    return 1\n"
    with wasm_wall.open(Program(source=source, filename="evaluator.py"), Confinement()) as session:
        assert isinstance(session.loaded, Invalid)


def test_slow_rows_are_passed_on_before_the_whole_call_is_done(wasm_wall):
    source = EVALUATE + "    for _ in range(3_000_000): pass\n    return output\n"
    program = Program(source=source, filename="evaluator.py")
    with wasm_wall.open(program, Confinement(isolation=Isolation.EVALUATOR)) as session:
        started = time.monotonic()
        running = session.run([b'{"output": %d}' % n for n in range(60)])
        first = next(running)
        assert time.monotonic() - started < 3
        assert values([first, *running]) == list(range(60))


@needs_the_box
def test_a_trap_after_the_last_report_is_the_last_rows(wasm_wall):
    source = (
        f"import os, sys\n{EVALUATE}    if output == 1:\n"
        "        sys.setprofile(lambda frame, event, arg: os._exit(1) if event == 'return' and frame.f_code.co_name == 'run' else None)\n"
        "    return output\n"
    )
    outcomes = run(wasm_wall, source, 1, 2, isolation="evaluator")
    assert values(outcomes[:1]) == [1]
    assert isinstance(outcomes[1], Crashed)
