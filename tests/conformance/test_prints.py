"""One suite for every wall: what a row prints is its own, apart from its result, and has a limit."""

import pytest
from forms import Forms, each, evaluating, only_in_python
from sessions import run, values

from evalcell_sandboxes import Isolation, Returned

PRINTING = Forms("import sys\n", "") + evaluating(
    "\n    print('said', output)\n    print('warned', file=sys.stderr)\n    return output",
    "console.log('said', output);\n  console.warn('warned');\n  return output;",
)


def test_prints_are_captured_per_row_and_apart_from_results(wall):
    outcomes = run(wall, PRINTING, 1, 2, isolation="evaluator")
    assert values(outcomes) == [1, 2]
    assert [outcome.stdout for outcome in outcomes] == ["said 1\n", "said 2\n"]
    assert [outcome.stderr for outcome in outcomes] == ["warned\n", "warned\n"]


METHODS = {"stdout": "log", "stderr": "error"}


@pytest.mark.parametrize(("limit", "stream"), [("stdout_bytes", "stdout"), ("stderr_bytes", "stderr")])
def test_output_is_cut_at_its_limit_and_says_so(real_wall, limit, stream):
    source = Forms("import sys\n", "") + evaluating(
        f"\n    for _ in range(1000): print('x' * 1000, file=sys.{stream})\n    return 1",
        f"for (let n = 0; n < 1000; n++) console.{METHODS[stream]}('x'.repeat(1000));\n  return 1;",
    )
    (outcome,) = run(real_wall, source, 1, **{limit: 2000})
    text = getattr(outcome, stream)
    assert isinstance(outcome, Returned)
    assert text.startswith("xxx")
    assert "dropped" in text
    assert len(text) < 2200


@only_in_python
def test_writes_to_the_raw_descriptors_belong_to_their_row(wall):
    source = (
        "import os\ndef evaluate(output):\n    os.write(1, b'out %d' % output); os.write(2, b'err')\n    return 1\n"
    )
    outcomes = run(wall, source, 1, 2, 3, isolation="evaluator")
    assert [(outcome.stdout, outcome.stderr) for outcome in outcomes] == [
        ("out 1", "err"),
        ("out 2", "err"),
        ("out 3", "err"),
    ]


def test_raw_writes_count_against_the_limit_of_their_stream(wasm_wall):
    source = (
        "import os\ndef evaluate(output):\n"
        "    print('x' * 90)\n    os.write(1, b'y' * 90); os.write(2, b'z' * 90)\n    return 1\n"
    )
    (outcome,) = run(wasm_wall, source, 1, stdout_bytes=100, stderr_bytes=10)
    assert len(outcome.stdout) == 100
    assert outcome.stderr == "z" * 10


@pytest.mark.parametrize("isolation", list(Isolation))
@each(
    "meddling",
    python=(
        "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')",
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')",
        "sys.stdout.close()",
        "sys.stdout.buffer.close()",
        "sys.stdout = None",
        "del sys.stdout",
    ),
    typescript=(
        "console = { ...console };",
        "Object.freeze(console);",
        "Object.defineProperty(globalThis, 'console', { value: { log: console.log } });",
        "JSON.stringify = JSON.parse = null as any;",
        "String.prototype.charCodeAt = Array.prototype.join = () => 'x' as any;",
        "Object.defineProperty(Array.prototype, '0', { set() { throw 1; } });",
        "Object.defineProperty(Object.prototype, 'kept', { set() { throw 1; } });",
    ),
)
def test_code_that_rearranges_its_streams_loses_nothing(wall, meddling, isolation):
    at_load = Forms(f"import io, sys\n{meddling}\n", f"{meddling}\n") + evaluating(
        "\n    print('said')\n    return 1", "console.log('said');\n  return 1;"
    )
    in_row = Forms("import io, sys\n", "") + evaluating(
        f"\n    if output == 1: {meddling}\n    else: print('said')\n    return 1",
        f"if (output === 1) {{ {meddling} }} else console.log('said');\n  return 1;",
    )
    assert [outcome.stdout for outcome in run(wall, at_load, 1, 2, isolation=isolation)] == ["said\n"] * 2
    outcomes = run(wall, in_row, 1, 2, 3, isolation=isolation)
    assert values(outcomes) == [1, 1, 1]
    assert [outcome.stdout for outcome in outcomes[1:]] == ["said\n"] * 2
