"""What is thrown in TypeScript: what is said of it, and where in the source that is."""

import json

import pytest
from sessions import opened, run, values
from typescript import EVALUATE, returning, throwing

from evalcell_sandboxes import Raised

PLACES = {
    "types-on-lines-of-their-own": (
        ("interface Row {\n  output: number;\n}\ntype Text = string;\n"
        "export function evaluate({ output }: Row) {\n  const x: number = 1; throw new Error('x');\n}\n"),
        "evaluate (evaluator.ts:6:30)",
    ),
    "types-before-it-on-the-line": (
        "export function evaluate({ output }: { output: Record<string, unknown> }): number { throw new Error('x') }\n",
        "evaluate (evaluator.ts:1:91)",
    ),
    "imports-of-types": (
        ("import type { Row } from './rows';\nimport { type Other } from './rows';\n"
        "export function evaluate({ output }: Row) {\n  throw new Error('x');\n}\n"),
        "evaluate (evaluator.ts:4:9)",
    ),
    "enum": (
        "enum Grade {\n  A,\n  B,\n}\nexport function evaluate({ output }) {\n  const x: number = 1; throw new Error('x');\n}\n",
        "evaluate (evaluator.ts:6:30)",
    ),
    "namespace": (
        ("namespace Inner {\n  export function deep(x: number): number {\n    throw new Error('x');\n  }\n}\n"
        "export function evaluate({ output }) {\n  return Inner.deep(1);\n}\n"),
        "deep (evaluator.ts:3:11)",
    ),
    "parameter-property": (
        ("class Judge {\n  constructor(private readonly by: number) {}\n  score(): number { throw new Error('x'); }\n}\n"
        "export function evaluate({ output }) {\n  return new Judge(3).score();\n}\n"),
        "score (evaluator.ts:3:27)",
    ),
    "line-feeds-of-windows": (
        "interface Row {\r\n  output: number }\r\nexport function evaluate({ output }) {\r\n  throw new Error('x');\r\n}\r\n",
        "evaluate (evaluator.ts:4:9)",
    ),
    "line-feeds-of-windows-and-an-enum": (
        "enum Grade {\r\n  A }\r\nexport function evaluate({ output }) {\r\n  throw new Error('x');\r\n}\r\n",
        "evaluate (evaluator.ts:4:9)",
    ),
    "other-scripts-before-it": (
        "export function evaluate({ output }) {\n  const s: string = '漢字 🙂'; throw new Error('x');\n}\n",
        "evaluate (evaluator.ts:2:36)",
    ),
    "other-scripts-before-it-and-an-enum": (
        "enum Grade { A }\nexport function evaluate({ output }) {\n  const s: string = '漢字 🙂'; throw new Error('x');\n}\n",
        "evaluate (evaluator.ts:3:36)",
    ),
    "default-export": (
        "export default ({ output }) => {\n  throw new Error('x');\n};\n",
        "default (evaluator.ts:2:9)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLACES)
def test_an_error_says_where_it_is_in_the_source(deno, case):
    source, place = PLACES[case]
    (outcome,) = run(deno, source, 1)
    assert isinstance(outcome, Raised)
    assert outcome.traceback.startswith(f"Error: x\n    at {place}")
    assert "evalcell" not in outcome.traceback


def test_only_places_in_the_source_are_led_back_to_it(deno):
    """An enum makes more of the source than it was. What a message says is left as it is."""
    said = "time 10:12:34 see http://host:80:443\n    at noon:12:1"
    source = f"enum Grade {{\nA,\n B }}\n{throwing(f'new Error({json.dumps(said)})')}"
    (outcome,) = run(deno, source, 1)
    assert outcome.message == said
    assert outcome.traceback == f"Error: {said}\n    at evaluate (evaluator.ts:5:9)"


STACKS = {
    "new Error('x')": "Error: x",
    "new TypeError('x')": "TypeError: x",
    "new (class Mine extends Error {})('x')": "Error: x",
    "new (class extends Error { name = 'Named'; })('x')": "Named: x",
    "Object.assign(new Error('x'), { message: { toString() { throw 1; } } })": "Error",
    "new Error()": "Error",
}


@pytest.mark.parametrize("expression", STACKS)
def test_a_stack_begins_with_what_the_error_itself_holds(deno, expression):
    ((first, *frames),) = values(run(deno, returning(f"({expression}).stack.split('\\n')"), 1))
    assert first == STACKS[expression]
    assert all("evaluator.ts" in frame for frame in frames)


def test_a_stack_has_the_frames_that_were_awaited(deno):
    source = (
        "async function deep() {\n  await null;\n  throw new TypeError('deep');\n}\n"
        "export async function evaluate({ output }) {\n  await deep();\n}\n"
    )
    (outcome,) = run(deno, source, 1)
    assert outcome.traceback == ("TypeError: deep\n    at deep (evaluator.ts:3:9)\n    at evaluate (evaluator.ts:6:3)")


THROWN = {
    "5": ("Error", "threw 5, which is no Error"),
    "null": ("Error", "threw null, which is no Error"),
    "'text'": ("Error", 'threw "text", which is no Error'),
    "{ a: 1 }": ("Error", "threw { a: 1 }, which is no Error"),
    "Symbol('s')": ("Error", "threw Symbol(s), which is no Error"),
    "new Proxy({}, { get() { throw 1; } })": ("Error", "threw something that cannot be shown, which is no Error"),
    "new Proxy(new Error('e'), { get() { throw 1; } })": ("Error", "(the error's text could not be made)"),
    "new RangeError('far')": ("RangeError", "far"),
    "new (class Mine extends Error {})('mine')": ("Mine", "mine"),
    "new (class extends Error { name = 'Named'; })('x')": ("Named", "x"),
    "new AggregateError([new Error('in')], 'all')": ("AggregateError", "all"),
    "new Error('two\\nlines')": ("Error", "two\nlines"),
    "new Error('\\ud800')": ("Error", "\ufffd"),
    "Object.assign(new Error('e'), { message: {} })": ("Error", "[object Object]"),
    "Object.assign(new Error('e'), { stack: 5 })": ("Error", "e"),
    "new Error()": ("Error", ""),
}  # fmt: skip


@pytest.mark.parametrize("expression", THROWN)
@pytest.mark.parametrize("how", ["throw", "reject"])
def test_anything_can_be_thrown(deno, expression, how):
    source = throwing(f"({expression})") if how == "throw" else returning(f"Promise.reject({expression})")
    outcomes = run(deno, source, 1, 2, isolation="evaluator")
    assert [(outcome.exception, outcome.message) for outcome in outcomes] == [THROWN[expression]] * 2


def test_the_traceback_has_what_caused_an_error(deno):
    source = f"{EVALUATE}  const inner = new TypeError('inner');\n  throw new Error('outer', {{ cause: inner }});\n}}\n"
    (outcome,) = run(deno, source, 1)
    assert outcome.traceback == (
        "Error: outer\n    at evaluate (evaluator.ts:3:9)\nCaused by: TypeError: inner\n    at evaluate (evaluator.ts:2:17)"
    )


def test_an_error_that_is_its_own_cause_ends(deno):
    (outcome,) = run(deno, f"{EVALUATE}  const e = new Error('e');\n  e.cause = e;\n  throw e;\n}}\n", 1)
    assert 1 < outcome.traceback.count("Caused by: Error: e") < 10


def test_a_long_message_does_not_hide_the_frames(deno):
    (outcome,) = run(deno, throwing("new Error('x'.repeat(1e6))"), 1)
    assert len(outcome.message) == 4_000
    assert outcome.traceback.endswith("at evaluate (evaluator.ts:2:9)")


def test_a_syntax_error_says_where_it_is_when_it_is_loaded(deno):
    with opened(deno, "enum A { x }\nconst y: number = (;\n") as session:
        assert session.loaded.exception == "SyntaxError"
        assert session.loaded.traceback == "SyntaxError: Expression expected\n    at evaluator.ts:2:20"


def test_a_syntax_error_that_the_engine_alone_finds_is_one(deno):
    with opened(deno, f"const f = () => f({'1,' * 70_000}1);\n{returning('1')}") as session:
        assert isinstance(session.loaded, Raised)
        assert session.loaded.exception == "SyntaxError"
        assert "Too many arguments" in session.loaded.message
