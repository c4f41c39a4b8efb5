"""What rows of TypeScript come to, where the language has more to it than a suite for every wall can say."""

import json
import time

import pytest
from sessions import opened, run, values
from typescript import EVALUATE, returning, throwing

from evalcell_sandboxes import (
    Confinement,
    Description,
    Invalid,
    Isolation,
    Language,
    Limits,
    Program,
    Raised,
    Returned,
    SyntaxProblem,
    sandbox,
)

# -- types that stand where a statement ends ----------------------------------------------------------------------------
JOINED = {
    "template": ("const half = String\ntype Z = string\n;`x`.length", "typeof half", "function"),
    "list": ("let score = 1\ntype W = [number]\n;[score] = [0.25]", "score", 0.25),
    "call": ("const f = () => 5\ntype T = number\n;(globalThis as any).z = 1", "f()", 5),
    "regex": ("const two = 2\ntype T = number\n;/x/g.test('x')", "two", 2),
    "declared": ("const f = () => 5\ndeclare const q: number\n;(() => 6)()", "f()", 5),
    "no-semicolon": ("const half = String\ntype Z = string\n[0]", "typeof half", "function"),
    "field": ("class A {\n  x = 1\n  declare y: number\n  ['z'] = 5\n}", "[new A().x, new A().z]", [1, 5]),
    "interface": ("const f = () => 5\ninterface I {}\n;(() => 6)()", "f()", 5),
    "in-a-function": ("const f = () => { let g = () => 5\ntype T = number\n;[1].map(String); return g }", "f()()", 5),
}


@pytest.mark.parametrize("case", JOINED)
def test_two_statements_stay_two_where_a_type_was_between_them(deno, case):
    source, expression, expected = JOINED[case]
    assert values(run(deno, f"{source}\n{returning(expression)}", 1)) == [expected]


def test_the_places_of_errors_are_exact_where_statements_had_no_semicolons(deno):
    source = f"const f = () => 5\ntype T = number\n;[f].length\n{throwing('new Error(`x`)')}"
    (outcome,) = run(deno, source, 1)
    assert outcome.traceback == "Error: x\n    at evaluate (evaluator.ts:5:9)"


# -- how evaluate is written --------------------------------------------------------------------------------------------
FORMS = {
    "function": "function evaluate({ output }) { return output }",
    "exported": "export function evaluate({ output }) { return output }",
    "async": "export async function evaluate({ output }) { return output }",
    "arrow": "const evaluate = ({ output }) => output",
    "exported-arrow": "export const evaluate = async ({ output }): Promise<number> => output;",
    "expression": "export const evaluate = function ({ output }) { return output }",
    "default-function": "export default function ({ output }) { return output }",
    "default-named": "export default function score({ output }) { return output }",
    "default-async": "export default async function ({ output }) { return output }",
    "default-arrow": "export default ({ output }) => output",
    "default-async-arrow": "export default async ({ output }) => output;",
    "default-identifier": "const score = ({ output }) => output;\nexport default score;",
    "default-in-parentheses": "export default (({ output }) => output);",
    "default-function-in-parentheses": "export default(function ({ output }) { return output })",
    "default-between-comments": "export /* default */ default /* ( */ ({ output }) => output",
    "default-over-lines": "export default\nasync function\nscore({ output }) { return output }",
    "default-beside-an-enum": "export enum Grade { A, B }\nexport default ({ output }) => output",
    "renamed": "function score({ output }) { return output }\nexport { score as evaluate };",
    "renamed-to-default": "function score({ output }) { return output }\nexport { score as default };",
    "listed": "export { evaluate };\nfunction evaluate({ output }) { return output }",
    "overloads": "export function evaluate(row: { output: 1 }): 1;\nexport function evaluate(row: { output: 2 }): 2;\n"
    "export function evaluate({ output }: any): any { return output }",
    "generic": "export function evaluate<T>({ output }: { output: T }): T { return output }",
    "generic-arrow": "export const evaluate = <T,>({ output }: { output: T }): T => output;",
    "satisfies": "export const evaluate = (({ output }) => output) satisfies Function;",
    "this": "export function evaluate(this: void, { output }) { return output }",
    "renaming": "export function evaluate({ output: given, missing = 1 }) { return given }",
    "quoted": "export function evaluate({ 'output': given }) { return given }",
    "defaults": "export function evaluate({ output }: { output?: number } = {}) { return output }",
    "whole-row": "export function evaluate(row) { return row.output }",
    "assigned-later": "let evaluate;\nevaluate = ({ output }) => output;",
    "bound": "export const evaluate = function ({ output }) { return output }.bind(null);",
    "hashbang": "#!/usr/bin/env -S deno run\nexport const evaluate = ({ output }) => output;",
    "not-a-method": "export function evaluate({ output }) { return this === undefined ? output : 0 }",
}


@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_write_evaluate_is_called_and_described(deno, form, plain_limits):
    assert values(run(deno, FORMS[form], 7, 8)) == [7, 8]
    assert [hook.name for hook in deno.describe(FORMS[form], plain_limits).hooks] == ["evaluate"]


@pytest.mark.parametrize("source", ["export const evaluate = 5;", "const other = 1;", "class evaluate {}"])
def test_what_cannot_be_called_is_named(deno, source):
    (outcome,) = run(deno, source, 1)
    assert isinstance(outcome, Raised)
    assert outcome.exception == "TypeError"
    assert "hooks" not in outcome.message
    assert "evaluate" in outcome.message


# -- results --------------------------------------------------------------------------------------------------------------
REFUSED = {
    "undefined": "undefined: did you forget return?",
    "NaN": "NaN",
    "1 / 0": "Infinity",
    "-1 / 0": "-Infinity",
    "10n": "a BigInt: make it a number, with Number(...)",
    "new Map([[1, 2]])": "a Map: make it an object, with Object.fromEntries(...)",
    "new Set([1])": "a Set: make it a list, with [...it]",
    "new Date(0)": "a Date: make it text, with toISOString()",
    "/x/": "a RegExp",
    "new Uint8Array(2)": "a Uint8Array",
    "new ArrayBuffer(2)": "an ArrayBuffer",
    "() => 1": "a function",
    "class Judge {}": "a function",
    "Symbol('x')": "a symbol",
    "new TypeError('x')": "an Error",
    "new Number(3)": "a Number",
    "function* () {}()": "a Generator",
    "{ scores: [1, { a: NaN }] }": "NaN, at 'scores[1].a'",
    "[[undefined]]": "undefined, at '[0][0]'",
    "[, 1]": "undefined, at '[0]'",
    "{ reason: undefined }": "undefined, at 'reason'",
    "{ when: new Date(0) }": "a Date: make it text, with toISOString(), at 'when'",
    "{ score: Promise.resolve(1) }": "a Promise: await it, at 'score'",
    "{ score: 1, toJSON() { return 2; } }": "a function, at 'toJSON'",
    "Promise.resolve(NaN)": "NaN",
    "{ then(done) { done(10n); } }": "a BigInt: make it a number, with Number(...)",
}  # fmt: skip


@pytest.mark.parametrize("expression", REFUSED)
def test_what_cannot_be_carried_out_is_named_with_its_place(deno, expression):
    refused, after = run(deno, f"{EVALUATE}  if (output) return ({expression});\n  return 5;\n}}\n", 1, 0)
    assert isinstance(refused, Invalid)
    assert refused.message == f"evaluate returned {REFUSED[expression]}"
    assert values([after]) == [5]


def test_a_promise_that_never_settles_and_a_cycle_are_named(deno):
    never, cycle = run(
        deno,
        f"{EVALUATE}  const cycle = {{}} as any;\n  cycle.it = [cycle];\n"
        "  return output ? new Promise(() => {}) : cycle;\n}\n",
        1,
        0,
    )
    assert never.message == "evaluate returned a promise that nothing in the sandbox will ever settle"
    assert cycle.message.startswith(
        "evaluate returned a value that is nested more than 64 levels deep, at 'it[0].it[0]"
    )


CARRIED = {
    "-0": 0,
    "1e300": 1e300,
    "5e-324": 5e-324,
    "2 ** 53": 2**53,
    "0.1 + 0.2": 0.1 + 0.2,
    "Promise.resolve(1)": 1,
    "{ then(done) { done(5); done(6); } }": 5,
    "new (class { x = 1; get y() { return 2; } })()": {"x": 1},
    "new (class { x = 1; toJSON() { return 2; } })()": {"x": 1},
    "Object.assign(Object.create(null), { a: 1 })": {"a": 1},
    "new Proxy({ a: 1 }, {})": {"a": 1},
    "{ __proto__: { hidden: 1 }, ['__proto__']: 2 }": {"__proto__": 2},
    "'\\u2028\\0\"\\\\🙂'": '\u2028\0"\\🙂',
    "['\\ud800', { '\\udc00': 1 }]": ["\ufffd", {"\ufffd": 1}],
    "{ 2: 'b', 1: 'a', [Symbol.iterator]: 1 }": {"1": "a", "2": "b"},
}


@pytest.mark.parametrize("expression", CARRIED)
@pytest.mark.parametrize("isolation", list(Isolation))
def test_what_can_be_carried_out_is(deno, expression, isolation):
    assert values(run(deno, returning(f"({expression})"), 1, 2, isolation=isolation)) == [CARRIED[expression]] * 2


# -- console --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("isolation", list(Isolation))
def test_a_console_writes_to_two_streams_row_by_row(deno, isolation):
    source = (
        f"{EVALUATE}  for (const name of ['log', 'info', 'debug']) console[name](name, output);\n"
        "  for (const name of ['warn', 'error']) console[name](name, output);\n"
        "  console.assert(output === 2, 'not two');\n  return output;\n}\n"
    )
    outcomes = run(deno, source, 1, 2, isolation=isolation)
    assert [outcome.stdout for outcome in outcomes] == [f"log {n}\ninfo {n}\ndebug {n}\n" for n in (1, 2)]
    assert [outcome.stderr for outcome in outcomes] == [
        "warn 1\nerror 1\nAssertion failed: not two\n",
        "warn 2\nerror 2\n",
    ]


SHOWN = {
    "'a', 1, -0, null, undefined, true, 10n": "a 1 -0 null undefined true 10n",
    "": "",
    "['a', [1, [2, [3, [4]]]]]": '[ "a", [ 1, [ 2, [Array] ] ] ]',
    "{ a: { b: { c: { d: 1 } } }, 'b c': 2 }": '{ a: { b: { c: [Object] } }, "b c": 2 }',
    "[], {}": "[] {}",
    "new Map([[1, { a: 'x' }]]), new Set(['y'])": 'Map(1) { 1 => { a: "x" } } Set(1) { "y" }',
    "/x/g, Symbol('s'), () => 1, function f() {}": "/x/g Symbol(s) [Function: (anonymous)] [Function: f]",
    "new (class Judge { by = 1 })(), Object.create(null)": "Judge { by: 1 } {}",
    "(() => { const c = {} as any; c.c = c; return c; })()": "{ c: [Circular] }",
    "Array.from({ length: 102 }, () => 1)": "[ " + "1, " * 100 + "... 2 more ]",
    "new Error('e')": "Error: e\n    at evaluate (evaluator.ts:2:15)",
}


@pytest.mark.parametrize("things", SHOWN)
def test_a_console_shows_what_it_is_given(deno, things):
    (outcome,) = run(deno, f"{EVALUATE}  console.log({things});\n  return 1;\n}}\n", 1)
    assert outcome.stdout == SHOWN[things] + "\n"


def test_a_console_groups_counts_and_traces(deno):
    source = (
        f"{EVALUATE}  console.group('outer');\n  console.log('a\\nb');\n  console.groupEnd();\n  console.log('c\\nd');\n"
        "  console.count();\n  console.count();\n  console.trace('here', output);\n  return 1;\n}\n"
    )
    (outcome,) = run(deno, source, 1)
    assert outcome.stdout == "outer\n  a\n  b\nc\nd\ndefault: 1\ndefault: 2\n"
    assert outcome.stderr == "Trace: here 1\n    at evaluate (evaluator.ts:8:11)\n"


CUT = {
    ("'x'.repeat(9)", 10): "xxxxxxxxx\n",
    ("'x'.repeat(10)", 10): "xxxxxxxxxx\n[1 more bytes were dropped: the limit is 10]",
    ("'漢'.repeat(10)", 10): "漢漢漢\n[22 more bytes were dropped: the limit is 10]",
    ("'🙂🙂'", 6): "🙂\n[5 more bytes were dropped: the limit is 6]",
    ("'é'", 0): "\n[3 more bytes were dropped: the limit is 0]",
}


@pytest.mark.parametrize(("text", "limit"), CUT)
@pytest.mark.parametrize(("stream", "method"), [("stdout", "log"), ("stderr", "error")])
def test_prints_are_cut_between_characters(deno, text, limit, stream, method):
    source = f"{EVALUATE}  console.{method}({text});\n  return 1;\n}}\n"
    for outcome in run(deno, source, 1, 2, isolation="evaluator", **{f"{stream}_bytes": limit}):
        assert getattr(outcome, stream) == CUT[text, limit]


def test_what_is_printed_beside_a_failure_is_kept(deno):
    source = f"{EVALUATE}  console.log('before');\n  if (output) throw new Error('x');\n  return NaN;\n}}\n"
    raised, invalid = run(deno, source, 1, 0)
    assert (raised.stdout, invalid.stdout) == ("before\n", "before\n")


def test_what_is_printed_while_loading_belongs_to_loading(deno):
    with opened(deno, f"console.log('loading');\n{returning('1')}") as session:
        assert session.loaded.stdout == "loading\n"
        assert [outcome.stdout for outcome in session.run([json.dumps({"output": 1}).encode()] * 2)] == ["", ""]


UNEXPORTED = "function evaluate({ output }: EvaluatorParams) {\n  return 1;\n}\n"
"""Deno reads it as a script, and leaves such comments in."""


@pytest.mark.parametrize(
    ("line", "source"),
    [
        (2, f"let a = 1, b = 1;\na <!--b, `\nimport('node:fs');\n--> `;\n{UNEXPORTED}"),
        (2, f"let a = 1;\n/* */ --> a;\n{UNEXPORTED}"),
        (3, f"let a = 1;\na\n-->1\n{UNEXPORTED}"),
    ],
)
def test_what_is_a_comment_in_scripts_alone_is_refused(line, source):
    found = sandbox("deno").describe(source, Limits())
    assert isinstance(found, SyntaxProblem)
    assert "can be comments" in found.message
    assert found.line == line


@pytest.mark.parametrize(
    "beginning", ["let n = 3; while (n--> 1);", "const t = '<!--' + `-->`; /* <!-- */", "const r = /<!--/;"]
)
def test_what_only_looks_like_such_a_comment_is_none(beginning):
    source = f"{beginning}\nexport function evaluate({{ output }}: EvaluatorParams) {{ return 1 }}\n"
    assert isinstance(sandbox("deno").describe(source, Limits()), Description)


@pytest.mark.parametrize(
    "source",
    [
        "export\ndefault\n({ output }: EvaluatorParams) => output;\n",
        "export /* é\n😀 */ default ({ output }: EvaluatorParams) => output;\n",
        "class Kept { [await 'x'] = 1 }\nexport const evaluate = ({ output }: EvaluatorParams) => output;\n",
    ],
)
def test_exports_and_awaits_are_found_wherever_they_stand(source):
    program = Program(source, "evaluator.ts", Language.TYPESCRIPT)
    with sandbox("deno").open(program, Confinement()) as session:
        assert isinstance(session.loaded, Returned), session.loaded
        assert [outcome.value for outcome in session.run([b'{"output": 7}'])] == [b"7"]


@pytest.mark.parametrize(
    ("line", "message"), [("const $default = 1;", "another name"), ("@x class A {}", "no decorators")]
)
def test_what_cannot_be_is_refused_by_name(line, message):
    found = sandbox("deno").describe(f"{line}\nexport default ({{ output }}: EvaluatorParams) => output;\n", Limits())
    assert isinstance(found, SyntaxProblem)
    assert message in found.message


@pytest.mark.parametrize("isolation", list(Isolation))
def test_rows_do_not_pay_for_whoever_takes_their_outcomes_slowly(isolation):
    """Reports larger than a pipe are half there when nobody listens."""
    source = "export const evaluate = ({ output }: EvaluatorParams) => 'x'.repeat(output);\n"
    confinement = Confinement(limits=Limits(wall_seconds=0.5), isolation=isolation)
    with sandbox("deno").open(Program(source, "evaluator.ts", Language.TYPESCRIPT), confinement) as session:
        for outcome in session.run([b'{"output": 600000}'] * 4):
            assert isinstance(outcome, Returned), outcome
            time.sleep(0.7)
