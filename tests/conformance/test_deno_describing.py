"""What is learnt of a source in TypeScript by parsing it, and that nothing of it is executed."""

import time

import pytest
from typescript import RETURN

from evalcell_sandboxes import Exceeded, Limits, SyntaxProblem


@pytest.fixture
def described(deno, plain_limits):
    return lambda source: deno.describe(source, plain_limits)


def parameters(hook):
    if hook.parameters is None:
        return None
    return [(parameter.name, str(parameter.kind), parameter.default) for parameter in hook.parameters]


# -- hooks ----------------------------------------------------------------------------------------------------------------
FIELDS = {
    "{ output }": [("output", "keyword_only", None)],
    "{ output, reference }: { output: string; reference?: string }": [
        ("output", "keyword_only", None),
        ("reference", "keyword_only", None),
    ],
    "{ output: given, reference: other = 5, ...rest }: any": [
        ("output", "keyword_only", None),
        ("reference", "keyword_only", "5"),
        ("rest", "any_keyword", None),
    ],
    "{ 'output': given, 1: one }": [("output", "keyword_only", None), ("1", "keyword_only", None)],
    "{ output: { text } }": [("output", "keyword_only", None)],
    "{ a = { x: [1, 'b)'] }, b = `}` }: Row": [
        ("a", "keyword_only", "{ x: [1, 'b)'] }"),
        ("b", "keyword_only", "`}`"),
    ],
    "{ output }: Row = {} as Row": [("output", "keyword_only", None)],
    "{ output }, options = {}": [("output", "keyword_only", None)],
    "{}": [],
    "row": None,
    "": None,
    "...rows": None,
    "[first]": None,
    "{ ['out' + 'put']: given }": None,
    "{ output }, other": None,
}


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize(
    "form",
    ["export function evaluate({}) {{}}", "export const evaluate = async ({}) => 1;", "export default ({}) => 1;"],
    ids=["function", "arrow", "default"],
)
def test_the_fields_that_evaluate_takes_are_its_parameters(described, form, fields):
    (hook,) = described(form.format(fields)).hooks
    assert parameters(hook) == FIELDS[fields]


def test_every_hook_is_found_with_its_line_and_its_parameters(described):
    source = (
        "interface Row {\n  output: number;\n}\n"
        "export function fit(rows: Row[]): void {}\n"
        "export const aggregate = async (results: unknown[], weight = 1) => 1;\n"
        "export function evaluate_batch([first, ...rest]: Row[]) {}\n"
        "export default function score({ output }: Row) {}\n"
    )
    hooks = {hook.name: hook for hook in described(source).hooks}
    assert {name: (hook.line, hook.is_async) for name, hook in hooks.items()} == {
        "evaluate": (7, False),
        "fit": (4, False),
        "aggregate": (5, True),
        "evaluate_batch": (6, False),
    }
    assert parameters(hooks["fit"]) == [("rows", "positional_only", None)]
    assert parameters(hooks["aggregate"]) == [
        ("results", "positional_only", None),
        ("argument 2", "positional_only", "..."),
    ]
    assert all(hooks[name].takes_one_argument for name in ("fit", "aggregate", "evaluate_batch"))


def test_lines_are_those_of_the_source_where_it_was_transformed(described):
    source = "enum Grade {\n  A,\n  B,\n}\n\n\nexport function evaluate({ output = Grade.A }) {}\n"
    (hook,) = described(source).hooks
    assert (hook.line, parameters(hook)) == (7, [("output", "keyword_only", "Grade.A")])


@pytest.mark.parametrize(
    "before",
    [
        "// export function evaluate({ wrong }) {}",
        "/* export function evaluate({ wrong }) {} */",
        "const s = 'export function evaluate({ wrong }) {}';",
        "const s = `export function evaluate({ wrong }) { ${ (function evaluate({ wrong }) {})() }`;",
        "const r = /export function evaluate({ wrong }) {} [/'`]/;",
        "function outer() { function evaluate({ wrong }) {} }",
        "const held = { evaluate({ wrong }) {}, fit: (rows) => 1 };",
        "class Held { evaluate({ wrong }) {} static fit(rows) {} }",
        "declare function evaluate(row: { wrong: number }): number;",
        "type T = { evaluate({ wrong }): void };",
    ],
)
def test_what_only_looks_like_a_hook_fools_nobody(described, before):
    (hook,) = described(f"{before}\nexport function evaluate({{ right }}) {{}}\n").hooks
    assert (hook.line, parameters(hook)) == (2, [("right", "keyword_only", None)])


def test_a_field_that_is_taken_twice_is_one_parameter(described):
    found = described("export function evaluate({ a, a: again = 2, b = 1, b: other }: any) { return a }\n")
    assert [(parameter.name, parameter.required) for parameter in found.hooks[0].parameters] == [
        ("a", True),
        ("b", True),
    ]


def test_a_source_without_hooks_has_none(described):
    assert described("export const score = 1;\nif (score) { const evaluate = 1; }\n").hooks == ()


# -- imports --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("parameters", ["{ output }", "{ output }: any"])
def test_an_import_that_nothing_needs_vanishes_with_types_and_without(described, parameters):
    assert described(f"import {{ z }} from 'npm:zod';\nexport function evaluate({parameters}) {{}}\n").imports == ()


def test_imports_of_values_are_listed_with_their_lines_and_those_of_types_vanish(described):
    source = (
        "import def, { type A, b } from './b.ts';\n"
        "import * as all from 'npm:zod';\n"
        "import 'node:fs';\n"
        "import type { T } from './t';\n"
        "import { type U } from './u';\n"
        "import { V } from './v';\n"
        "const used: A = def(b, all) as V;\n"
        "export { other } from './other';\n"
        "export const evaluate = async ({ output }) => [await import('./c.ts'), await import(output)];\n"
        "// import './comment'\nconst s = \"import './string'\";\n"
    )
    assert [(found.module, found.line, found.standard, found.present) for found in described(source).imports] == [
        ("./b.ts", 1, False, False),
        ("npm:zod", 2, False, False),
        ("node:fs", 3, True, False),
        ("./other", 8, False, False),
        ("./c.ts", 9, False, False),
        ("(computed)", 9, False, False),
    ]


# -- the block ------------------------------------------------------------------------------------------------------------
def block(*lines: str) -> str:
    return "\n".join(["// /// script", *(f"// {line}".rstrip() for line in lines), "// ///", RETURN])


TABLES = {
    "empty": ((), {}),
    "values": (("a = 1", "b = 1.5", 'c = "läßt 漢字"', "", "d = [true, {e = 0xff}]"), {"a": 1, "b": 1.5, "c": "läßt 漢字", "d": [True, {"e": 255}]}),
    "dates": (("day = 2024-01-02", "at = 2024-01-02T03:04:05Z"), {"day": "2024-01-02", "at": "2024-01-02T03:04:05.000Z"}),
    "bounds": (("[tool.evalcell.output]", "range = [-inf, inf]"), {"tool": {"evalcell": {"output": {"range": ["-inf", "inf"]}}}}),
    "whole-numbers": (("most = 9223372036854775807", "least = -9223372036854775808"), {"most": 2**63 - 1, "least": -(2**63)}),
    "tables": (("[[x]]", "a = 1", "[[x]]", "a = 2"), {"x": [{"a": 1}, {"a": 2}]}),
    "names-of-objects": (("toString = 1", "[__proto__]", "a = 1"), {"toString": 1, "__proto__": {"a": 1}}),
}  # fmt: skip


@pytest.mark.parametrize("case", TABLES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_table_of_the_block_is_read(described, case, ending):
    lines, table = TABLES[case]
    found = described(f"#!/usr/bin/env deno\n{block(*lines)}".replace("\n", ending)).block
    assert (found.line, found.table, found.error) == (2, table, None)


PROBLEMS = {
    "no-toml": (block("a ="), 1, "not valid TOML"),
    "twice": (block("a = 1", "a = 2"), 1, "not valid TOML"),
    "infinity-elsewhere": (block("a = inf"), 1, "Infinity has no place at a"),
    "not-a-number": (block("[b]", "a = nan"), 1, "NaN has no place at b.a"),
    "too-large": (block("a = 9223372036854775808"), 1, "more than 64 bits has no place at a"),
    "second-block": (block("a = 1") + "// /// script\n// ///\n", 5, "a second '// /// script' block"),
    "no-end": (f"// /// script\n// a = 1\n{RETURN}", 1, "no closing '// ///'"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_a_block_that_cannot_be_read_says_why(described, case):
    source, line, message = PROBLEMS[case]
    found = described(source).block
    assert (found.line, found.table) == (line, None)
    assert message in found.error


def test_a_source_without_a_block_has_none(described):
    assert described(f"  // /// script\n  // ///\n{RETURN}").block is None


# -- what does not parse --------------------------------------------------------------------------------------------------
SYNTAX_ERRORS = {
    "expression": ("let x: number = 1;\n\nlet y: string = (;", "Expression expected", 3, 18),
    "type": ("let a: = 5; enum B {}", "Unexpected token `=`", 1, 8),
    "after-an-enum": ("enum A { x }\nlet b = 1; let b = 2;", "Identifier 'b' has already been declared", 2, 16),
    "string": ('const s = "abc\n', "Unterminated string constant", 1, 11),
    "regex": ("\n  /(/", "Unterminated group", 2, 4),
    "twice": ("const evaluate = 1;\nfunction evaluate() {}", "has already been declared", 2, 10),
    "return": ("return 5", "outside of function", 1, 1),
    "strict": ("with (a) {}", "'with' in strict mode", 1, 1),
    "nothing-exported": ("export { nothing }", "Export 'nothing' is not defined", 1, 10),
    "decorator": ("@judge class A {}", "Unexpected character '@'", 1, 1),
    "meta": ("\nconst here = import.meta.url;", "import.meta is not there", 2, 14),
    "end-of-our-own": ("})(); (function () {", "Expression expected", 1, 1),
}


@pytest.mark.parametrize("case", SYNTAX_ERRORS)
def test_what_does_not_parse_says_what_and_where(described, case):
    source, message, line, column = SYNTAX_ERRORS[case]
    problem = described(source)
    assert isinstance(problem, SyntaxProblem)
    assert message in problem.message
    assert (problem.line, problem.column) == (line, column)
    assert problem.text == source.split("\n")[line - 1].rstrip()


def test_a_comment_without_an_end_does_not_hide_the_rest(described):
    problem = described(f"/* judge\n{RETURN}")
    assert isinstance(problem, SyntaxProblem)
    assert "comment" in problem.message


@pytest.mark.parametrize("source", ["[" * 100_000, f"let a = {'(' * 5_000}1{')' * 5_000}", f"let a = {'-' * 100_000}1"])
def test_what_is_nested_too_deeply_is_a_limit_or_an_error_and_no_crash(described, source):
    answer = described(source)
    assert isinstance(answer, SyntaxProblem) or (isinstance(answer, Exceeded) and answer.limit == "stack")


def test_a_source_over_its_limit_is_not_read(deno):
    answer = deno.describe(f"{RETURN}// {'x' * 2_000}", Limits(source_bytes=1_000))
    assert isinstance(answer, Exceeded)
    assert answer.limit == "source_bytes"


# -- nothing is executed --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "before",
    ["while (true);", "throw new Error('x');", "await new Promise(() => {});", "const x = new Array(1e9).fill(0);"],
)
def test_describing_executes_nothing(described, before):
    started = time.monotonic()
    assert [hook.name for hook in described(f"{before}\n{RETURN}").hooks] == ["evaluate"]
    assert time.monotonic() - started < 5
