"""What only the WebAssembly wall has to prove: what it does with its instances, and with reports that code made up."""

import time

import pytest
from forging import SAY, needs_the_box

from evalcell_sandboxes import Confinement, Exceeded, Invalid, Limits, Outcome, Program, Returned, sandbox
from evalcell_sandboxes.nesting import MOST_LEVELS, too_deep
from evalcell_sandboxes.stacks import start_with_plenty


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
