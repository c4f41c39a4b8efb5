"""One suite for every wall: what calls come to, of honest and of broken code."""

import pytest
from forms import Forms, each, evaluating, only_in_python, program
from sessions import opened, run, values

from evalcell_sandboxes import Confinement, Exceeded, Invalid, Raised

RETURN_OUTPUT = evaluating("return output", "return output;")
DIVIDE = evaluating(
    "return 1 / output", "if (output === 0) throw new RangeError('division by zero'); return 1 / output;"
)


@pytest.mark.parametrize(
    "value",
    [1, 0.5, True, None, "läßt — 漢字 🙂", {"score": 1.0, "metadata": {"deep": [1, {"x": None}]}}, [], -0.0, 2**53],
    ids=repr,
)
def test_a_returned_value_arrives_as_json(wall, value):
    assert values(run(wall, RETURN_OUTPUT, value)) == [value]


def test_rows_come_back_in_order_and_one_outcome_each(wall):
    source = evaluating("return output * 2", "return output * 2;")
    assert values(run(wall, source, *range(10))) == [2 * n for n in range(10)]


FAILING = Forms(
    "import json\ndef evaluate(output):\n    return json.loads(output)\n",
    "import type { Row } from './rows';\nexport function evaluate({ output }: Row) {\n    return JSON.parse(output);\n}\n",
)
ERROR = Forms("JSONDecodeError", "SyntaxError")
FRAME = Forms('File "evaluator.py", line 3, in evaluate', "at evaluate (evaluator.ts:3:17)")
ANY_FRAME = Forms("File ", "    at ")


def test_an_exception_is_a_value_with_the_users_lines_only(wall):
    (outcome,) = run(wall, FAILING, "{")
    assert isinstance(outcome, Raised)
    assert outcome.exception == ERROR.of(wall)
    assert "line 1 column 2" in outcome.message
    assert FRAME.of(wall) in outcome.traceback
    assert outcome.traceback.count(ANY_FRAME.of(wall)) == 1


def test_a_row_after_an_exception_is_right(wall):
    outcomes = run(wall, DIVIDE, 0, 2)
    assert isinstance(outcomes[0], Raised)
    assert values(outcomes[1:]) == [0.5]


UNHELD = Forms(
    (
        "float('nan')",
        "float('inf')",
        "{'score': float('-inf')}",
        "{1, 2}",
        "object()",
        "b'x'",
        "(n for n in [1])",
        "1j",
        "{(1, 2): 3}",
    ),
    (
        "NaN",
        "Infinity",
        "{ score: -Infinity }",
        "new Set([1, 2])",
        "new Map()",
        "new Uint8Array(1)",
        "(function* () { yield 1; })()",
        "1n",
        "undefined",
        "{ when: new Date() }",
    ),
)


@each("expression", python=UNHELD.python, typescript=UNHELD.typescript, fake=True)
def test_a_value_that_json_cannot_hold_is_invalid(wall, expression):
    (outcome,) = run(wall, evaluating(f"return {expression}", f"return {expression};"), 1)
    assert isinstance(outcome, Invalid)


def test_a_result_over_its_limit_is_invalid(wall):
    (outcome,) = run(wall, evaluating("return 'x' * 5000", "return 'x'.repeat(5000);"), 1, result_bytes=1000)
    assert isinstance(outcome, Invalid)
    assert "result_bytes" in outcome.message


def test_a_result_nested_too_deep_is_invalid(real_wall):
    source = evaluating(
        "\n    value = []\n    for _ in range(output): value = [value]\n    return value",
        "let value: unknown[] = [];\n  for (let n = 0; n < output; n++) value = [value];\n  return value;",
    )
    deep, cyclic = run(real_wall, source, 100_000, 70)
    assert isinstance(deep, Invalid)
    assert isinstance(cyclic, Invalid)


def test_usage_is_on_every_outcome(wall):
    for outcome in run(wall, DIVIDE, 1, 0):
        assert outcome.usage.wall_seconds > 0
        assert outcome.usage.cpu_seconds >= 0


@each(
    "leaving",
    python=("sys.exit(0)", "raise KeyboardInterrupt", "raise SystemExit"),
    typescript=("throw undefined", "throw null", "return Promise.reject()", "return Promise.reject(output)"),
)
def test_leaving_by_exception_is_raised_and_not_a_success(wall, leaving):
    (outcome,) = run(wall, Forms("import sys\n", "") + evaluating(leaving, leaving), 1)
    assert isinstance(outcome, Raised)


NOTHING_OF_THAT_NAME = Forms("import nothing_of_that_name\n", "nothing_of_that_name();\n")
NOT_FOUND = Forms("ModuleNotFoundError", "ReferenceError")


def test_a_module_that_fails_to_load_says_so_once(real_wall):
    with opened(real_wall, NOTHING_OF_THAT_NAME) as session:
        assert isinstance(session.loaded, Raised)
        assert session.loaded.exception == NOT_FOUND.of(real_wall)


# -- waiting ----------------------------------------------------------------------------------------------------------
GATHERING = Forms(
    "import asyncio\nasync def evaluate(output):\n    await asyncio.sleep(0.5)\n"
    "    return sum(await asyncio.gather(*[one(n) for n in range(3)]))\n"
    "async def one(n):\n    await asyncio.sleep(0)\n    return n\n",
    "export async function evaluate() {\n  await null;\n"
    "  return (await Promise.all([0, 1, 2].map(one))).reduce((sum, n) => sum + n);\n}\n"
    "async function one(n: number): Promise<number> {\n  await null;\n  return n;\n}\n",
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            Forms(
                "async def evaluate(output): return output",
                "export async function evaluate({ output }) { return output }",
            ),
            3,
            id="plain",
        ),
        pytest.param(GATHERING, 3, id="gather"),
        pytest.param(
            Forms(
                "import asyncio\ndef evaluate(output):\n    return asyncio.run(asyncio.sleep(0, output))\n",
                "export const evaluate = ({ output }) => Promise.resolve(output);\n",
            ),
            3,
            id="without-the-word",
        ),
    ],
)
def test_async_evaluators_work(real_wall, source, expected):
    assert values(run(real_wall, source, 3)) == [expected]


NEVER = Forms(
    "import asyncio\nasync def evaluate(output):\n    await asyncio.get_running_loop().create_future()\n",
    "export async function evaluate({ output }) {\n  await new Promise(() => {});\n}\n",
)


def test_awaiting_what_never_comes_is_an_error_and_no_hang(real_wall):
    (outcome,) = run(real_wall, NEVER, 1, wall_seconds=1.0)
    match real_wall.name:
        case "wasm":  # where it is known that nothing else could complete it
            assert isinstance(outcome, Raised)
            assert "nothing in the sandbox will ever complete" in outcome.message
        case "deno":  # where that is known, too, of what it has returned
            assert isinstance(outcome, Invalid)
            assert "nothing in the sandbox will ever settle" in outcome.message
        case _:
            assert isinstance(outcome, Exceeded)
            assert outcome.limit == "wall_seconds"


# -- arguments --------------------------------------------------------------------------------------------------------
@only_in_python
def test_positional_only_parameters_are_passed_by_position(wall):
    source = "def evaluate(output, middle=5, /, *, last=7): return [output, middle, last]\n"
    assert values(run(wall, source, 1)) == [[1, 5, 7]]


SIGNATURES = Forms(
    (
        ("output, reference", "output, reference", [1, 2]),
        ("reference, output", "output, reference", [1, 2]),
        ("output, reference=5, extra=6", "output, reference, extra", [1, 2, 6]),
        ("output, extra=6, reference=5", "output, reference, extra", [1, 2, 6]),
        ("output, /, reference", "output, reference", [1, 2]),
        ("output, *, reference", "output, reference", [1, 2]),
        ("reference, *rest, output", "output, reference, rest", [1, 2, []]),
        ("**fields", "fields", [{"output": 1, "reference": 2}]),
    ),
    (
        ("{ output, reference }", "output, reference", [1, 2]),
        ("{ reference, output }: Row", "output, reference", [1, 2]),
        ("{ output, reference = 5, extra = 6 }", "output, reference, extra", [1, 2, 6]),
        ("{ output, extra = 6, reference = 5 }", "output, reference, extra", [1, 2, 6]),
        ("{ output: given, 'reference': other }", "given, other", [1, 2]),
        ("{ reference, ...rest }", "reference, rest", [2, {"output": 1}]),
        ("{ output, reference } = { output: 3, reference: 4 }", "output, reference", [1, 2]),
        ("fields, others = 7", "fields, others", [{"output": 1, "reference": 2}, 7]),
    ),
)
RETURNING = Forms("def evaluate({}): return [{}]\n", "export function evaluate({}) {{ return [{}]; }}\n")


@each("signature, given, expected", python=SIGNATURES.python, typescript=SIGNATURES.typescript)
def test_arguments_reach_the_parameters_of_their_names(wall, signature, given, expected):
    row = b'{"reference": 2, "output": 1}'
    with wall.open(program(wall, RETURNING.of(wall).format(signature, given)), Confinement()) as session:
        assert values(list(session.run([row, row]))) == [expected] * 2
