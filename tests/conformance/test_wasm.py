"""What only the WebAssembly wall has to prove: what it does with its instances, and with reports that code made up."""

import json
import time
from pathlib import Path

import pytest
from forging import SAY, needs_the_box

from evalcell_sandboxes import (
    Confinement,
    Exceeded,
    Invalid,
    Isolation,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    sandbox,
)
from evalcell_sandboxes.nesting import MOST_LEVELS, too_deep
from evalcell_sandboxes.stacks import start_with_plenty
from evalcell_sandboxes.wasm import guests


def run(source: str, *rows: bytes, **limits: float) -> list[Outcome]:
    found: list[Outcome] = []

    def work() -> None:
        program = Program(source=source, filename="evaluator.py")
        with sandbox("wasm").open(program, Confinement(limits=Limits(**limits))) as session:
            found.append(session.loaded)
            found.extend(next(session.run([row])) for row in rows)

    start_with_plenty(work, "test").join()
    return found


def test_a_module_that_hangs_when_it_is_loaded_again_does_not_cost_its_limit_on_every_row():
    """A first load compiles, later ones get the code: a module may tell them apart, and hang on the second alone."""
    source = (
        "import sys\nframe = sys._getframe()\n"
        "while 'options' not in frame.f_locals: frame = frame.f_back\n"
        "while frame.f_locals['options']['code']: pass\ndef evaluate(output): return 1\n"
    )
    started = time.monotonic()
    loaded, *rows = run(source, *[b'{"output": 1}'] * 20, load_seconds=0.5, wall_seconds=0.5)
    assert isinstance(loaded, Exceeded)
    assert all(isinstance(row, Exceeded) for row in rows)
    assert time.monotonic() - started < 0.5 * 10


FORGES = f"""{SAY}
def evaluate(output):
    say('{{"kind":"returned","value":' + '[' * output + ']' * output + '}}')
    silence()
"""


@needs_the_box
@pytest.mark.parametrize("levels", [1, MOST_LEVELS, MOST_LEVELS + 1, 500, 980, 100_000])
def test_a_forged_value_is_held_to_the_depth_that_can_be_decoded_anywhere(levels):
    _, outcome = run(FORGES, b'{"output": %d}' % levels)
    assert isinstance(outcome, Returned if levels <= MOST_LEVELS else Invalid), outcome


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        (b"[" * 100 + b"]" * 100, False),
        (b"[" * 101 + b"]" * 101, True),
        (b'"' + b"[" * 500 + b'"', False),
        (b'["\\"' + b"[" * 500 + b'"]', False),
        (b"[" + b"[]," * 500 + b"[]]", False),
        (b'{"a":' * 101 + b"1" + b"}" * 101, True),
        (b"", False),
    ],
)
def test_depth_is_found_without_decoding(text, deep):
    assert too_deep(text) is deep


@needs_the_box
def test_a_row_that_made_up_reports_is_charged_for_its_time():
    source = (
        f"{SAY}def evaluate(output):\n    import time\n    time.sleep(0.25)\n"
        "    say('{}'); say('{}')\n    return 1\n"
    )
    _, outcome = run(source, b'{"output": 1}')
    assert isinstance(outcome, Invalid)
    assert outcome.usage.wall_seconds > 0.2


def hooked(source: str, rows: list[bytes], isolation: Isolation = Isolation.ROW) -> tuple[Outcome, list[Outcome]]:
    """What came of `fit` on the rows, and then of the rows."""
    confinement = Confinement(isolation=isolation)
    with sandbox("wasm").open(Program(source=source, filename="evaluator.py"), confinement) as session:
        return session.fit(rows), list(session.run(rows))


def test_a_row_that_cannot_be_read_is_left_out_of_fit_and_fails_alone():
    source = "def fit(rows):\n    global seen\n    seen = len(rows)\ndef evaluate(output): return seen\n"
    rows = [b'{"output":1}', b'{"output":' + b"9" * 5_000 + b"}", b'{"output":3}']
    fitted, (first, unreadable, last) = hooked(source, rows)
    assert isinstance(fitted, Returned)
    assert isinstance(unreadable, Invalid)
    assert [first.value, last.value] == [b"2", b"2"]


@pytest.mark.parametrize("isolation", Isolation)
def test_fit_may_choose_which_function_evaluates(isolation):
    source = "def fit(rows):\n    global evaluate\n    evaluate = lambda output: output + len(rows)\ndef evaluate(output): return 0\n"
    _, (outcome,) = hooked(source, [b'{"output":41}'], isolation)
    assert outcome.value == b"42"


@pytest.mark.parametrize("fit", ["def fit(rows):\n    yield rows\n", "async def fit(rows):\n    yield rows\n"])
def test_a_fit_of_which_nothing_was_executed_is_no_fit(fit):
    fitted, _ = hooked(fit + "def evaluate(output): return 1\n", [b'{"output":1}'])
    assert isinstance(fitted, Invalid)
    assert "yield" in fitted.message


@pytest.mark.parametrize("fit", ["class fit:\n    def __init__(self, rows): pass\n", "from json import dumps as fit\n"])
def test_a_hook_need_not_be_a_function_to_be_found(fit):
    described = sandbox("wasm").describe(fit + "def evaluate(output): return 1\n", Limits())
    assert [hook.name for hook in described.hooks] == ["evaluate", "fit"]


def test_the_rehearsal_that_warms_the_image_up_does_what_it_is_for():
    source = (Path(guests.__file__).parent / "guest" / "rehearsal.py").read_text()
    rows = [
        json.dumps({"output": text, "reference": "the same words"}).encode()
        for text in ("the same words", "print it", None)
    ]
    with sandbox("wasm").open(Program(source=source, filename="rehearsal.py"), Confinement()) as session:
        same, printed, nothing = session.run(rows)
    assert same.value == b"1.0"
    assert "compared 8 GOOD" in printed.stdout
    assert (nothing.exception, nothing.message) == ("ValueError", "there is no output")


# -- settling ----------------------------------------------------------------------------------------------------------
GARBAGE = """
class Loud:
    def __init__(self): self.me = self
    def __del__(self): print("gone")
Loud()
def evaluate(output):
    print("mine")
    return 1
"""


@pytest.mark.parametrize("isolation", Isolation)
def test_what_is_collected_after_loading_printed_while_it_was_loaded_and_not_in_every_row(isolation):
    with sandbox("wasm").open(Program(GARBAGE, "evaluator.py"), Confinement(isolation=isolation)) as session:
        assert session.loaded.stdout == "gone\n"
        assert [outcome.stdout for outcome in session.run([b'{"output": 1}'] * 3)] == ["mine\n"] * 3


def test_prints_of_settling_itself_are_nobodys():
    source = "import gc\ngc.callbacks.append(lambda *_: print('collecting'))\ndef evaluate(output): return 1\n"
    loaded, *rows = run(source, b'{"output": 1}', b'{"output": 1}')
    assert loaded.stdout
    assert [row.stdout for row in rows] == ["", ""]


STATE = "import gc\ndef evaluate(output):\n    return [gc.get_freeze_count(), id(evaluate), gc.get_count(), {learnt}]\n"
FITTED = (
    STATE.format(learnt="learnt")
    + "def fit(rows):\n    global learnt\n    learnt = [gc.get_freeze_count(), id(rows)]\n"
)


@pytest.mark.parametrize(("source", "fits"), [(STATE.format(learnt=0), False), (FITTED, True)])
@pytest.mark.parametrize("weight", [10, 2_000_000], ids=["code carried over", "too much code to carry"])
def test_every_instance_starts_rows_from_the_same_state(source, fits, weight):
    row = b'{"output": 1}'
    with sandbox("wasm").open(
        Program(f"{source}WEIGHT = {'x' * weight!r}\n", "evaluator.py"), Confinement()
    ) as session:
        if fits:
            assert isinstance(session.fit([row]), Returned)
        first, second = session.run([row, row])
        session._guest.close()
        third, fourth = session.run([row, row])
    assert {outcome.value for outcome in (first, second, third, fourth)} == {first.value}


@pytest.mark.parametrize("meddling", ["raise ValueError", "while True: pass", "return 42", "import os; os._exit(3)"])
@pytest.mark.parametrize("when", ["load", "fit"])
def test_a_module_that_does_not_settle_is_never_run(meddling, when):
    meddle = (
        f"import calling\n{{indent}}def settle(reserve):\n{{indent}}    {meddling}\n{{indent}}calling.settle = settle\n"
    )
    source = "def evaluate(output): return 1\n"
    if when == "load":
        source += meddle.format(indent="")
    else:
        source += "def fit(rows):\n    " + meddle.format(indent="    ").strip() + "\n"
    row = b'{"output": 1}'
    limits = Limits(load_seconds=1.0, fit_seconds=1.0)
    started = time.monotonic()
    with sandbox("wasm").open(Program(source, "evaluator.py"), Confinement(limits=limits)) as session:
        ready = session.loaded if when == "load" else session.fit([row])
        outcomes = list(session.run([row] * 20))
    assert not isinstance(ready, Returned)
    assert not any(isinstance(outcome, Returned) for outcome in outcomes)
    assert time.monotonic() - started < 20


def test_no_snapshot_is_taken_of_an_instance_that_is_gone(monkeypatch):
    """Where its memory lay there may be anything by now, and a snapshot maps copies over what it finds."""
    taken = []
    monkeypatch.setattr(guests, "Snapshot", taken.append)
    loaded, row = run("import calling\ncalling.settle = None\ndef evaluate(output): return 1\n", b'{"output": 1}')
    assert not isinstance(loaded, Returned)
    assert not isinstance(row, Returned)
    assert taken == []


@pytest.mark.parametrize(
    "evaluate",
    [
        "def evaluate(output, reference, extra): return 1\nevaluate = lambda output, reference: 1\n",
        "def less(function): return lambda output, reference: 1\n@less\ndef evaluate(output, reference, extra): return 1\n",
    ],
)
def test_no_argument_is_dropped_silently(evaluate):
    _, outcome = run(evaluate, b'{"output": 1, "reference": 2, "extra": 3}')
    assert isinstance(outcome, Raised)
    assert "unexpected keyword argument 'extra'" in outcome.message


def test_a_function_that_changes_gets_its_arguments_by_name():
    source = (
        "def evaluate(output, reference):\n"
        "    evaluate.__code__ = (lambda reference, output: [output, reference]).__code__\n"
        "    return [output, reference]\n"
    )
    rows = [b'{"output": 1, "reference": 2}'] * 2
    with sandbox("wasm").open(Program(source, "evaluator.py"), Confinement(isolation=Isolation.EVALUATOR)) as session:
        assert [outcome.value for outcome in session.run(rows)] == [b"[1, 2]", b"[1, 2]"]


def test_a_traceback_holds_nothing_of_how_evaluate_was_called():
    _, outcome = run("def evaluate(output, reference, extra=1): return 1 / 0\n", b'{"output": 1, "reference": 2}')
    assert isinstance(outcome, Raised)
    assert outcome.traceback.count("Error") == 1
    assert outcome.traceback.count("Traceback") == 1
