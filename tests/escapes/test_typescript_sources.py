"""Sources in TypeScript as attacks: bombs for the parser, text that is to get out of the function that is made of a module,
and whatever is to have a frame, an export or an import taken for what it is not.

Describing a source never runs it, and comes to an end. What is run does what it says, in the place where it stands.
"""

import json
import time

import pytest

from evalcell_sandboxes import (
    Confinement,
    Crashed,
    Description,
    Exceeded,
    Limits,
    Outcome,
    Program,
    Raised,
    Returned,
    SyntaxProblem,
    sandbox,
)

EVALUATE = "export function evaluate() { return 1 }\n"
LIMITS = Limits(load_seconds=4.0, wall_seconds=4.0, memory_bytes=128 * 1024**2)
GRACE_SECONDS = 2.0
BOUNDED = (Description, SyntaxProblem, Exceeded)


def described(source: str) -> Description | SyntaxProblem | Exceeded | Crashed:
    started = time.monotonic()
    found = sandbox("deno").describe(source, LIMITS)
    assert time.monotonic() - started < LIMITS.load_seconds + GRACE_SECONDS
    assert len(repr(found)) < 4 * 1024**2
    return found


def run(source: str, row: object = None) -> Outcome:
    """What becomes of one row, or of loading where that fails."""
    with sandbox("deno").open(Program(source=source, filename="attack.ts"), Confinement(limits=LIMITS)) as session:
        if not isinstance(session.loaded, Returned):
            return session.loaded
        return next(session.run([json.dumps(row or {}).encode()]))


def returned(source: str) -> object:
    outcome = run(source)
    assert isinstance(outcome, Returned), outcome
    return json.loads(outcome.value)


def nested(opening: str, closing: str, times: int) -> str:
    return f"const x = {opening * times}1{closing * times};\n{EVALUATE}"


def block(text: str) -> str:
    return "// /// script\n" + "".join(f"// {line}\n" for line in text.splitlines()) + f"// ///\n{EVALUATE}"


BOMBS = {
    "parentheses": nested("(", ")", 100_000),
    "a-megabyte-of-parentheses": "(" * (1024**2 - 1),
    "brackets": nested("[", "]", 100_000),
    "braces": "{" * 100_000 + "}" * 100_000 + EVALUATE,
    "calls": nested("f(", ")", 100_000),
    "arrows": nested("() => ", "", 100_000),
    "templates": nested("`${", "}`", 50_000),
    "minus": nested("- ", "", 200_000),
    "sums": nested("1+", "", 150_000),
    "members": nested("", ".a" * 200_000, 1),
    "conditions": nested("1 ? ", " : 1", 50_000),
    "types": f"type X = {'Array<' * 50_000}1{'>' * 50_000};\n{EVALUATE}",
    "generics": f"const x = f{'<f' * 50_000}{'>' * 50_000};\n{EVALUATE}",
    "unions": f"type X = {'1 | ' * 100_000}1;\n{EVALUATE}",
    "branches": "if (1) ; " + "else if (1) ; " * 50_000 + EVALUATE,
    "functions": "function f() {" * 50_000 + "}" * 50_000 + EVALUATE,
    "classes": "class A { static x = " * 30_000 + "1" + "}" * 30_000 + EVALUATE,
    "namespaces": "namespace A { " * 30_000 + "}" * 30_000 + EVALUATE,
    "decorators": "@a " * 100_000 + "class X {}\n" + EVALUATE,
    "patterns": f"export function evaluate({'{a: ' * 30_000}b{'}' * 30_000}) {{ return 1 }}\n",
    "parameters": f"export function evaluate({{ {', '.join(f'p{n}' for n in range(60_000))} }}) {{ return 1 }}\n",
    "imports": "import 'x';\n" * 60_000 + EVALUATE,
    "enum": f"enum A {{ {', '.join(f'p{n}' for n in range(50_000))} }}\n{EVALUATE}",
    "regex": f"const x = /{'(' * 50_000}{')' * 50_000}/;\n{EVALUATE}",
    "regex-classes": f"const x = /{'[a-z' * 50_000}]/v;\n{EVALUATE}",
    "unclosed-text": f"const x = '{'x' * 10**6}",
    "unclosed-template": f"const x = `{'${`' * 50_000}",
    "unclosed-comment": f"/*{'*' * 10**6}",
    "escapes": f"const x = '{chr(92)}u{{{'0' * 10**5}41}}';\n{EVALUATE}",
    "long-identifier": f"const {'x' * 10**6} = 1;\n",
    "long-number": f"const x = {'9' * 10**6}n;\n{EVALUATE}",
    "constant": f"const x = 1n << 1000000000n; const y = 'x'.repeat(2 ** 40);\n{EVALUATE}",
    "combining": f"const x = '{'a' + chr(0x300) * 200_000}';\n{EVALUATE}",
    "line-separators": "\u2028" * 100_000 + EVALUATE,
    "lines": "x;\n" * 300_000 + EVALUATE,
    "comments": "/**/" * 200_000 + EVALUATE,
    "labels": "a:" * 100_000 + ";" + EVALUATE,
    "block-nesting": block(f"x = {'[' * 50_000}"),
    "block-dotted-key": block(f"{'.'.join('a' * 20_000)} = 1"),
    "block-tables": block("\n".join(f"[a{n}]" for n in range(30_000))),
    "block-integer": block(f"x = {'9' * 100_000}"),
    "block-text": block(f'x = """{"a" * 500_000}"""'),
    "blocks": "// /// script\n" * 50_000 + EVALUATE,
    "nul": f"const x = 1\0\n{EVALUATE}",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_defused_behind_the_wall_in_time(name):
    assert isinstance(described(BOMBS[name]), BOUNDED)


@pytest.mark.parametrize("name", ["parentheses", "functions", "templates", "constant", "long-number", "regex"])
def test_a_bomb_that_is_run_costs_nobody_else_anything(name):
    assert isinstance(run(BOMBS[name]), Raised | Exceeded | Returned)


def test_a_source_that_is_longer_than_it_may_be_is_not_parsed():
    assert isinstance(described("x;" * 10**6), Exceeded)


NOT_RUN = {
    "loop": "while (true);\n",
    "throw": "throw new Error('run');\n",
    "memory": "const kept = []; while (true) kept.push(new Array(1000).fill(0));\n",
    "exit": "Deno.exit(3);\n",
    "await": "await new Promise(() => {});\n",
    "default": "const { x = (() => { while (true); })() } = {};\n",
    "static-block": "class A { static { while (true); } }\n",
    "enum": "enum A { B = (() => { while (true); })() as any }\n",
    "computed-key": "class A { [(() => { while (true); })()]() {} }\n",
    "tag": "(() => { while (true); })()`x`;\n",
}


@pytest.mark.parametrize("name", NOT_RUN)
def test_what_is_described_is_not_run(name):
    found = described(NOT_RUN[name] + EVALUATE)
    assert isinstance(found, Description), found
    assert [hook.name for hook in found.hooks] == ["evaluate"]


# Each is to get out of the function around the module. Ran, it says "out" of what it has left outside.
BREAKS_OUT = {
    "brace": "});\nglobalThis.z = 'out';\n(function () {\n",
    "brace-on-a-line": "}); globalThis.z = 'out'; (function () {",
    "brace-of-an-arrow": "})(); globalThis.z = 'out'; (() => {\n",
    "brace-after-return": "return {} }); globalThis.z = 'out'; (function () {\n",
    "brace-after-a-comment": "/* */ }); globalThis.z = 'out'; (function () { /* */\n",
    "brace-in-a-template": "`${ `}); globalThis.z = 'out'; (function () {` }\n",
    "html-comment": "let x = 1, y = 2;\nconst q = x <!--y + (function () {\n}); globalThis.z = 'out'; (function () {\n});\n",
    "html-comment-end": "let x = 1;\nx\n--> (function () {\n}); globalThis.z = 'out'; (function () {\n",
    "html-comment-in-a-comment": "/*\n*/ --> (function () {\n}); globalThis.z = 'out'; (function () {\n",
    "html-comment-hides-a-comment": "let x = 1, y = 2;\nx <!--y /*\n}); globalThis.z = 'out'; (function () { /*/ 1; */\n",
    "html-comment-hides-a-template": "let x = 1, y = 2;\nx <!--y + `\n}); globalThis.z = 'out'; (function () {\n// `;\n",
    "line-separator-in-a-comment": "// \u2028}); globalThis.z = 'out'; (function () {\n",
    "return-in-a-comment": "// \r}); globalThis.z = 'out'; (function () {\n",
    "regex": "const r = /[/]}); globalThis.z = 'out'; (function () {/;\n",
    "regex-or-division": "let a = 1, g = 1;\na = 1\n/}); globalThis.z = 'out'; (function () {/g;\n",
    "escaped-brace": "\\u007d); globalThis.z = 'out'; (function () {\n",
    "hashbang": "#!}); globalThis.z = 'out'; (function () {\n",
    "second-hashbang": "\n#!}); globalThis.z = 'out'; (function () {\n",
    "directive": "'use strict'; }); globalThis.z = 'out'; (function () {\n",
    "type-assertion": "const x = <any>(function () {}); }); globalThis.z = 'out'; (function () {\n",
    "exported-name": "const x = 1; export { x as 'evaluate}); globalThis.z = 1; (function () {' };\n",
}


@pytest.mark.parametrize("export", ["export ", ""])
@pytest.mark.parametrize("name", BREAKS_OUT)
def test_a_source_stays_in_the_function_that_is_made_of_it(name, export):
    source = BREAKS_OUT[name] + f"\n{export}function evaluate() {{ return String((globalThis as any).z) }}\n"
    assert isinstance(described(source), BOUNDED)
    outcome = run(source)
    assert isinstance(outcome, Raised | Returned), outcome
    if isinstance(outcome, Raised):
        assert outcome.exception == "SyntaxError"
    else:
        assert outcome.value == b'"undefined"'


HOOKLESS = {
    "text": "const x = 'export function evaluate() {}';\n",
    "template": "const x = `\nexport function evaluate() {}\n`;\n",
    "comment": "/*\nexport function evaluate() {}\n*/\n",
    "line-comment": "// export function evaluate() {}\n",
    "regex": "const x = /export function evaluate() {}/;\n",
    "nested": "function outer() { function evaluate() {} }\n",
    "method": "class A { evaluate() {} }\n",
    "block-scope": "{ const evaluate = () => 1 }\n",
    "type": "type evaluate = 1;\n",
    "interface": "interface evaluate { x: 1 }\n",
    "declared": "declare function evaluate(): number;\n",
    "type-export": "type X = 1; export type { X as evaluate };\n",
    "property": "const x = { evaluate: () => 1 };\n",
    "label": "evaluate: for (;;) break evaluate;\n",
}


@pytest.mark.parametrize("name", HOOKLESS)
def test_what_only_looks_like_a_hook_is_none(name):
    found = described(HOOKLESS[name])
    assert isinstance(found, Description), found
    assert found.hooks == ()


MEANS = {
    "plain": "export function evaluate() { return 1 }",
    "default": "export default function () { return 1 }",
    "default-arrow": "export default () => 1",
    "default-class-before": "class A {}\nexport default () => 1",
    "renamed": "function x() { return 1 }\nexport { x as evaluate }",
    "renamed-by-text": "function x() { return 1 }\nexport { x as 'evaluate' }",
    "renamed-to-default": "function x() { return 1 }\nexport { x as default }",
    "escaped-name": "export function \\u0065valuate() { return 1 }",
    "braced-escape": "export function \\u{65}valuate() { return 1 }",
    "emoji-before-an-export": "const x = '😀😀😀';\nexport const evaluate = () => x.length / 6;",
    "emoji-in-a-pattern": "const { '😀': x = 1 } = {} as any; export function evaluate() { return x }",
    "emoji-in-an-enum": "enum A { '😀' = 1 }\nexport function evaluate() { return A['😀'] }",
    "export-without-a-semicolon": "const x = () => 1\nexport { x as evaluate }\n(function () {})()",
    "export-before-brackets": "let y = 0; const x = () => 1\nexport { x as evaluate }\n[y] = [1]",
    "export-before-a-template": "const x = () => 1\nexport { x as evaluate }\n`x`",
    "byte-order-mark": "\ufeffexport function evaluate() { return 1 }",
    "hashbang": "#!/usr/bin/env deno\nexport function evaluate() { return 1 }",
    "carriage-returns": "export function evaluate() {\r\n  return (\r\n    1\r\n  )\r\n}\r\n",
    "overloads": "export function evaluate(x: 1): 1;\nexport function evaluate(x: 2): 1;\nexport function evaluate(x: any) { return 1 }",
    "declared-global": "declare global { interface X { y: 1 } }\nexport function evaluate() { return 1 }",
    "generic-arrow": "export const evaluate = <T,>(x: T) => 1;",
    "type-arguments": "const f = <T,>(x: T) => x; export const evaluate = () => f<number>(1);",
    "assertions": "export const evaluate = () => (1 as unknown as any)! satisfies number;",
    "namespace": "namespace A { export const x = 1 }\nexport function evaluate() { return A.x }",
    "nested-namespace": "namespace A.B { export const x = 1 }\nexport function evaluate() { return A.B.x }",
    "enum": "enum A { B = 1 }\nexport function evaluate() { return A.B }",
    "parameter-property": "class A { constructor(readonly x: number) {} }\nexport const evaluate = () => new A(1).x;",
    "type-import": "import type { X } from 'x';\nexport const evaluate = (x: X) => 1;",
    "await-at-the-top": "const x = await 1;\nexport const evaluate = () => x;",
    "await-of-a-loop": "let x = 0; for await (const y of [1]) x = y;\nexport const evaluate = () => x;",
    "await-using": "await using x = null;\nexport const evaluate = () => 1;",
    "await-in-a-template": "const x = `${await 1}`;\nexport const evaluate = () => Number(x);",
    "this-at-the-top": "const x = this;\nexport const evaluate = () => x === undefined ? 1 : 0;",
    "strict": "'use strict';\nexport const evaluate = () => { try { (undeclared as any) = 1; return 0 } catch { return 1 } };",
    "name-of-ours": "const $default = 2, hooks = 3, factory = 4;\nexport function evaluate() { return 1 }",
    "source-url": "export function evaluate() { return 1 }\n//# sourceURL=evil.ts",
    "text-like-a-comment": "const x = '//# sourceURL=evil.ts';\nexport function evaluate() { return x === '/' + '/# sourceURL=evil.ts' ? 1 : 0 }",
    "template-like-a-comment": "const x = `\n//# sourceURL=evil.ts\n`;\nexport function evaluate() { return x.length - 22 }",
    "line-separators": "const x = '\u2028\u2029';\nexport function evaluate() { return x.length / 2 }",
}


@pytest.mark.parametrize("name", MEANS)
def test_a_source_means_what_it_says(name):
    found = described(MEANS[name])
    assert isinstance(found, Description), found
    assert [hook.name for hook in found.hooks] == ["evaluate"]
    assert returned(MEANS[name]) == 1


REFUSED = {
    "import-equals": "import x = require('node:fs');\nx;\n",
    "decorator": "@(() => { while (true); }) class A {}\n",
    "export-equals": "export = 1;\n",
    "import-meta": "const x = import.meta.url;\n",
    "import-meta-hidden": "const x = () => ({ [import.meta.url]: `${import.meta}` });\n",
    "return": "return 1;\n",
    "new-target": "const x = new.target;\n",
    "super": "super.x;\n",
    "with": "with ({}) {}\n",
    "octal": "const x = 010;\n",
    "await-as-a-name": "const await = 1;\n",
    "two-of-a-name": "const x = 1; const x = 2;\n",
    "missing-export": "export { missing };\n",
    "half-a-character": "const x = \\ud800;\n",
    "html-comment": "<!-- const x = 1 -->\n} {\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_module_of_ours_is_refused_with_its_place(name):
    found = described(REFUSED[name] + EVALUATE)
    assert isinstance(found, SyntaxProblem), found
    assert found.line in (1, 2)
    assert not {"file:", "evalcell:", "/guest/"} & set(found.message.split())


IMPORTS = {
    "static": ("import fs from 'node:fs';\nfs;\n", "node:fs"),
    "side-effect": "import 'https://x/y.ts';\n",
    "again": ("export { x } from './x.ts';\n", "./x.ts"),
    "everything": ("export * from 'npm:x';\n", "npm:x"),
    "dynamic": ("const x = () => import('jsr:@x/y');\n", "jsr:@x/y"),
    "computed": ("const x = () => import('a' + 'b');\n", "(computed)"),
    "in-a-template": ("const x = () => `${import('node:vm')}`;\n", "node:vm"),
    "in-a-default": ("export const y = ({ x = import('fs') }) => x;\n", "fs"),
    "half-a-character": ("const x = () => import('\\ud800');\n", "\ufffd"),
    "with-attributes": ("import x from './x.json' with { type: 'json' };\nx;\n", "./x.json"),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_is_found_and_leads_nowhere(name):
    source, module = IMPORTS[name] if isinstance(IMPORTS[name], tuple) else (IMPORTS[name], "https://x/y.ts")
    found = described(source + EVALUATE)
    assert isinstance(found, Description), found
    assert [each.module for each in found.imports] == [module]
    outcome = run(source + EVALUATE)
    assert isinstance(outcome, Raised | Returned), outcome
    # What would have to be called first does no harm, nor does handing something on that nobody asks for.
    assert isinstance(outcome, Returned) == ("import(" in source or "export {" in source)


THROWS = "export function evaluate() {\n  throw new Error('here')\n}\n"
# What stands before three lines that throw on the second of them, at the ninth column.
BEFORE = {
    "nothing": "",
    "line": "\n",
    "carriage-returns": "const x = 1;\r\nconst y = 2;\r\n",
    "emoji": "const x = '😀';\n",
    "types": "interface X {\n  y: 1;\n}\ntype Z = 1;\n",
    "declarations": "declare const x: number;\ndeclare module 'x' {\n  const y: 1;\n}\n",
    "overloads": "function f(x: 1): 1;\nfunction f(x: 2): 2;\nfunction f(x: any) { return x }\n",
    "enum": "enum A {\n  B,\n  C = 'x',\n}\n",
    "namespace": "namespace A {\n  export const x = 1;\n  export namespace B {\n    export const y = 2;\n  }\n}\n",
    "parameter-properties": "class A {\n  constructor(\n    private x: number,\n    readonly y = 2,\n  ) {}\n}\n",
    "type-imports": "import type { X } from 'x';\nimport { type Y } from 'y';\n",
    "hashbang": "#!/usr/bin/env deno\n",
    "byte-order-mark": "\ufeff\n",
    "source-url": "//# sourceURL=evil.ts\n",
    "old-source-url": "//@ sourceURL=evil.ts\n",
    "source-url-in-a-block": "/*# sourceURL=evil.ts */\n",
    "source-map": "//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbImV2aWwudHMiXSwibmFtZXMiOltdLCJtYXBwaW5ncyI6IkFBQUEifQ==\n",
    "source-map-of-an-enum": "enum A { B }\n//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJzb3VyY2VzIjpbImV2aWwudHMiXSwibmFtZXMiOltdLCJtYXBwaW5ncyI6IkFBQUEifQ==\n",
    "source-map-that-is-none": "enum A { B }\n//# sourceMappingURL=data:application/json;base64,e30=\n",
    "source-map-of-a-file": "//# sourceMappingURL=/etc/passwd\n",
    "comment-of-lines": "/*\n\n\n*/\n",
    "template-of-lines": "const x = `\n\n`;\n",
    "exports": "const x = 1\nexport { x }\nexport default x\n",
    "block": "// /// script\n// [tool.evalcell]\n// ///\n",
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_frame_is_where_it_stands_in_the_source(name):
    before = BEFORE[name]
    outcome = run(before + THROWS)
    assert isinstance(outcome, Raised), outcome
    line = before.count("\n") + 2
    assert outcome.traceback == f"Error: here\n    at evaluate (attack.ts:{line}:9)"


def test_a_made_up_place_is_looked_for_no_longer_than_the_source_is():
    source = "enum A { B }\nexport function evaluate() { throw Object.assign(new Error('x'), { stack: 'x\\n    at attack.ts:999999999999999:1' }) }\n"
    assert isinstance(run(source), Raised)
