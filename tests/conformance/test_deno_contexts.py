"""The contexts that rows of TypeScript run in: what is in them, what is carried from row to row, and batches."""

import json
import subprocess

import pytest
from sessions import lines, opened, run, values
from typescript import EVALUATE, RETURN, returning

from evalcell_sandboxes import Exceeded, Invalid, Isolation, Raised, Returned
from evalcell_sandboxes.deno import prereqs

BOTH = pytest.mark.parametrize("isolation", list(Isolation))


# -- what is there --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def language() -> set[str]:
    """The names that a context has by itself, which is what the language has."""
    code = (
        "import vm from 'node:vm'; console.log(JSON.stringify(vm.runInContext("
        "'Object.getOwnPropertyNames(globalThis)', vm.createContext(vm.constants.DONT_CONTEXTIFY))))"
    )
    done = subprocess.run(
        [str(prereqs.binary()), "eval", "--no-config", code], capture_output=True, check=True, timeout=30
    )
    return set(json.loads(done.stdout))


@BOTH
def test_only_the_language_is_there_and_two_names_more(deno, language, isolation):
    (found,) = values(run(deno, returning("Object.getOwnPropertyNames(globalThis)"), 1, isolation=isolation))
    assert len(found) == len(set(found))
    assert set(found) == (language - {"WebAssembly", "queueMicrotask"}) | {"console", "Deno"}


def test_nothing_of_a_platform_is_there(deno):
    names = [
        "setTimeout",
        "setInterval",
        "setImmediate",
        "queueMicrotask",
        "fetch",
        "URL",
        "TextEncoder",
        "TextDecoder",
        "Buffer",
        "process",
        "require",
        "module",
        "exports",
        "Worker",
        "WebSocket",
        "performance",
        "crypto",
        "navigator",
        "localStorage",
        "structuredClone",
        "atob",
        "Event",
        "AbortController",
        "WebAssembly",
        "window",
        "self",
        "global",
        "ShadowRealm",
        "gc",
        "prompt",
        "alert",
        "importScripts",
    ]
    source = f"{EVALUATE}  return [{', '.join(f'typeof {name}' for name in names)}];\n}}\n"
    (found,) = values(run(deno, source, 1))
    assert dict(zip(names, found, strict=True)) == dict.fromkeys(names, "undefined")


def test_what_is_called_deno_reads_what_was_given_and_no_more(deno):
    source = returning("[Object.keys(Deno), Object.keys(Deno.env), Object.keys(Deno.errors)]")
    assert values(run(deno, source, 1)) == [
        [
            ["readTextFileSync", "readFileSync", "readTextFile", "readFile", "env", "errors"],
            ["get", "has", "toObject", "set", "delete"],
            ["NotFound", "PermissionDenied"],
        ]
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "eval('1')",
        "(0, eval)('1')",
        "new Function('return 1')()",
        "(() => {}).constructor('return 1')()",
        "(async () => {}).constructor('return 1')()",
        "(function* () {}).constructor('yield 1')()",
    ],
)
def test_no_code_is_made_of_text(deno, expression):
    (outcome,) = run(deno, returning(expression), 1)
    assert isinstance(outcome, Raised)
    assert outcome.exception == "EvalError"


@pytest.mark.parametrize("source", ["./x.ts", "node:fs", "npm:zod", "data:text/javascript,export default 1"])
def test_no_module_is_there_to_import(deno, source):
    (outcome,) = run(deno, f"export const evaluate = async () => (await import('{source}')).default;\n", 1)
    assert isinstance(outcome, Raised)


def test_code_is_strict(deno):
    undeclared, frozen, this = run(
        deno,
        f"{EVALUATE}  if (output === 0) undeclared = 1;\n  if (output === 1) Object.freeze([1])[0] = 2;\n"
        "  return (function () { return this === undefined; })();\n}\n",
        0,
        1,
        2,
    )
    assert (undeclared.exception, frozen.exception) == ("ReferenceError", "TypeError")
    assert values([this]) == [True]


# -- loading --------------------------------------------------------------------------------------------------------------
@BOTH
def test_a_module_may_await_at_its_top_level(deno, isolation):
    source = "const half = await Promise.resolve(0.5);\nfor await (const _ of [1]);\n" + returning("half * output")
    assert values(run(deno, source, 2, 4, isolation=isolation)) == [1, 2]


@pytest.mark.parametrize(
    ("source", "exception", "place"),
    [
        ("\nconst x: number = 1;\nthrow new TypeError('bad');\n", "TypeError", "evaluator.ts:3:7"),
        ("await null;\nconst x: number = 1;\nthrow new TypeError('bad');\n", "TypeError", "evaluator.ts:3:7"),
        ("const late = () => early;\nlate();\nconst early = 1;\n", "ReferenceError", "late (evaluator.ts:1:20)"),
    ],
)
def test_a_module_that_throws_says_so(deno, source, exception, place):
    with opened(deno, source + RETURN) as session:
        assert isinstance(session.loaded, Raised)
        assert session.loaded.exception == exception
        assert place in session.loaded.traceback


def test_a_module_that_waits_for_ever_says_so(deno):
    with opened(deno, f"await new Promise(() => {{}});\n{RETURN}") as session:
        assert isinstance(session.loaded, Invalid)
        assert (
            session.loaded.message
            == "the module awaits something at its top level that nothing in the sandbox will ever settle"
        )


@BOTH
def test_what_a_module_and_fit_have_begun_is_done_before_the_first_row(deno, isolation):
    source = (
        "let table = {}, count = 0;\n(async () => { await null; table = { half: 0.5 }; })();\n"
        "export function fit(rows) { Promise.resolve().then(() => { count = rows.length; }); }\n"
        + returning("[table.half ?? null, count]")
    )
    with opened(deno, source, isolation=isolation) as session:
        assert values(list(session.run(lines(1)))) == [[0.5, 0]]
        session.fit(lines(1, 2, 3))
        assert values(list(session.run(lines(1, 2)))) == [[0.5, 3]] * 2


@pytest.mark.parametrize(
    "loop", ["while (true);", "const again = () => Promise.resolve().then(again);\nawait again();"]
)
def test_a_module_that_loops_is_stopped(deno, loop):
    with opened(deno, f"{loop}\n{RETURN}", load_seconds=0.5) as session:
        assert isinstance(session.loaded, Exceeded)
        assert session.loaded.limit == "load_seconds"


# -- from row to row ------------------------------------------------------------------------------------------------------
CARRIERS = {
    "module": "const said = seen; seen = secret; return said ?? null;",
    "global": "const said = globalThis.said; globalThis.said = secret; return said ?? null;",
    "prototype": "const said = ({}).said; Object.prototype.said = secret; return said ?? null;",
    "regex": "const said = RegExp.$1; /(.*)/.exec(secret); return said || null;",
    "console": "const said = console.said; console.said = secret; return said ?? null;",
    "facade": "const said = Deno.env.said; Deno.env.said = secret; return said ?? null;",
    "error": "const said = Error.said; Error.said = secret; return said ?? null;",
    "template": "const tag = (s) => s; const s = tag`x`; const said = s.said; try { s.said = secret } catch {} return said ?? null;",
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_nothing_is_carried_from_row_to_row(deno, carrier):
    source = f"let seen;\n{EVALUATE}  const secret = `secret ${{output}}`;\n  {CARRIERS[carrier]}\n}}\n"
    assert values(run(deno, source, 1, 2, 3)) == [None] * 3


def test_symbols_that_a_whole_process_shares_carry_no_text(deno):
    """They are found by text that one knows already, and hold nothing."""
    source = (
        f"{EVALUATE}  const found = Symbol.for('shared');\n"
        "  let said = null;\n  try { said = found.said ?? null; found.said = output; } catch {}\n"
        "  return [said, Symbol.keyFor(found), found.description];\n}\n"
    )
    assert values(run(deno, source, 1, 2)) == [[None, "shared", "shared"]] * 2


def test_chance_is_of_the_seed_and_of_the_row(deno):
    source = f"{EVALUATE}  return [Math.random(), Math.random()];\n}}\n"

    def drawn(seed: int, isolation: str = "row") -> list[list[float]]:
        with opened(deno, source, seed=seed, isolation=isolation) as session:
            return values(list(session.run(lines(1, 2, 1))))

    first, other_row, same_row = drawn(7)
    assert first == same_row
    assert len({*first, *other_row}) == 4
    assert drawn(7, "evaluator") == drawn(7)
    assert drawn(8)[0] != first
    assert all(0 <= number < 1 for number in first)


def test_chance_is_evenly_spread(deno):
    source = (
        f"{EVALUATE}  let sum = 0;\n  for (let n = 0; n < 1e5; n++) sum += Math.random();\n  return sum / 1e5;\n}}\n"
    )
    assert all(abs(mean - 0.5) < 0.01 for mean in values(run(deno, source, 1, 2, 3)))


@BOTH
def test_what_a_row_leaves_waiting_is_done_in_its_name(deno, isolation):
    source = (
        f"{EVALUATE}  Promise.resolve().then(() => console.log('of row', output));\n"
        "  (async () => { for (let n = 0; n < 5; n++) await null; console.warn('later', output); })();\n"
        "  return output % 2 ? output : Promise.resolve(output);\n}\n"
    )
    outcomes = run(deno, source, 1, 2, 3, isolation=isolation)
    assert values(outcomes) == [1, 2, 3]
    assert [outcome.stdout for outcome in outcomes] == [f"of row {n}\n" for n in (1, 2, 3)]
    assert [outcome.stderr for outcome in outcomes] == [f"later {n}\n" for n in (1, 2, 3)]


def test_what_a_row_leaves_waiting_changes_nothing_of_its_result(deno):
    source = f"{EVALUATE}  const made = {{ score: 1 }};\n  Promise.resolve().then(() => made.score = 0);\n  return made;\n}}\n"
    assert values(run(deno, source, 1, 2)) == [{"score": 1}] * 2


def test_a_row_that_leaves_a_loop_behind_is_the_one_that_is_over_its_time(deno):
    source = f"{EVALUATE}  if (output === 2) Promise.resolve().then(() => {{ while (true); }});\n  return output;\n}}\n"
    first, second, third = run(deno, source, 1, 2, 3, isolation="evaluator", wall_seconds=0.5)
    assert values([first, third]) == [1, 3]
    assert isinstance(second, Exceeded)


@pytest.mark.parametrize("beginning", ["Object.freeze(globalThis);", "Object.preventExtensions(globalThis);"])
def test_a_console_is_there_where_nothing_can_be_added(deno, beginning):
    source = f"{beginning}\n{EVALUATE}  console.group('a');\n  console.log(1);\n  return 1;\n}}\n"
    assert [outcome.stdout for outcome in run(deno, source, 1, 2)] == ["a\n  1\n"] * 2


# -- fit and aggregate ----------------------------------------------------------------------------------------------------
FITTED = (
    "const state: unknown[] = [];\nexport function fit(rows) { state.push(rows.length); }\n"
    f"{EVALUATE}  state.push(output);\n  return state;\n}}\n"
    "export function aggregate(results) { state.push('aggregate'); return state; }\n"
)


@BOTH
def test_fit_may_come_after_rows_and_come_again(deno, isolation):
    kept = isolation is Isolation.EVALUATOR
    with opened(deno, FITTED, isolation=isolation) as session:
        assert values(list(session.run(lines("a", "b")))) == [["a"], ["a", "b"] if kept else ["b"]]
        assert isinstance(session.fit(lines(1, 2, 3)), Returned)
        assert values(list(session.run(lines("c", "d")))) == [[3, "c"], [3, "c", "d"] if kept else [3, "d"]]
        assert values([session.aggregate(b"[]")]) == [[3, "aggregate"]]
        assert values(list(session.run(lines("e")))) == [[3, "e"]]
        assert isinstance(session.fit(lines(1)), Returned)
        assert values(list(session.run(lines("f"))))[0][-2:] == [1, "f"]


FAILING_FITS = {
    "throws": ("throw new TypeError('no')", Raised),
    "rejects": ("return Promise.reject(new TypeError('no'))", Raised),
    "loops": ("while (true);", Exceeded),
    "waits": ("return new Promise(() => {})", Invalid),
}


@BOTH
@pytest.mark.parametrize("case", FAILING_FITS)
def test_a_fit_that_fails_is_what_becomes_of_every_row(deno, case, isolation):
    body, kind = FAILING_FITS[case]
    with opened(
        deno, f"export function fit(rows) {{ {body} }}\n{RETURN}", isolation=isolation, fit_seconds=0.3
    ) as session:
        assert isinstance(session.fit(lines(1)), kind)
        assert all(isinstance(outcome, kind) for outcome in session.run(lines(1, 2)))


@BOTH
def test_fit_may_be_async_and_print_and_sees_no_row_that_is_no_json(deno, isolation):
    source = (
        "let seen = 0;\nexport async function fit(rows) { await null; console.log('fitting'); seen = rows.length; }\n"
        + returning("seen")
    )
    with opened(deno, source, isolation=isolation) as session:
        assert session.fit([*lines(1, 2), b"{"]).stdout == "fitting\n"
        assert values(list(session.run(lines(1)))) == [2]


def test_aggregate_may_fail_and_the_rows_after_it_are_right(deno):
    source = f"{RETURN}export async function aggregate(results) {{ return results[0].score.length; }}\n"
    with opened(deno, source) as session:
        assert values([session.aggregate(b'[{"score": "four"}]')]) == [4]
        assert isinstance(session.aggregate(b"[]"), Raised)
        assert isinstance(session.aggregate(b'[{"score": 1}]'), Invalid)
        assert values(list(session.run(lines(1)))) == [1]


# -- batches --------------------------------------------------------------------------------------------------------------
def batched(result: str) -> str:
    """A module whose batches come to that, and whose single rows say that they were."""
    return (
        f"{returning(repr('alone'))}export function evaluate_batch(rows) {{\n"
        f"  console.log('batch of', rows.length);\n  return {result};\n}}\n"
    )


def test_rows_that_share_state_are_given_to_evaluate_batch_together(deno):
    with opened(deno, batched("rows.map(({ output }) => [output, rows.length])"), isolation="evaluator") as session:
        bursts = list(session.bursts(lines(*range(1_000))))
    outcomes = [outcome for burst in bursts for outcome in burst]
    assert values(outcomes) == [[n, 512 if n < 512 else 488] for n in range(1_000)]
    assert [outcome.stdout for outcome in outcomes if outcome.stdout] == ["batch of 512\n", "batch of 488\n"]


def test_a_batch_may_be_awaited(deno):
    source = batched("Promise.all(rows.map(async ({ output }) => output))")
    assert values(run(deno, source, 1, 2, isolation="evaluator")) == [1, 2]


def test_where_every_row_starts_fresh_evaluate_batch_is_left_alone(deno):
    assert values(run(deno, batched("[]"), 1, 2)) == ["alone"] * 2


@pytest.mark.parametrize("result", ["rows.slice(1)", "[...rows, 1]", "5", "undefined", "{ length: rows.length }"])
def test_a_batch_of_another_length_gives_no_row_a_result(deno, result):
    outcomes = run(deno, batched(result), 1, 2, 3, isolation="evaluator")
    assert [outcome.message for outcome in outcomes] == [
        "evaluate_batch must return a list with one result for each row"
    ] * 3


FAILING_BATCHES = {
    "throws": ("rows.map(({ output }) => { if (output === 2) throw new Error('two'); return output; })", Raised),
    "returns-what-is-none": ("rows.map(({ output }) => output === 2 ? NaN : output)", Invalid),
    "loops": ("rows.map(({ output }) => { while (output === 2); return output; })", Exceeded),
    "dies": ("rows.map(({ output }) => output === 2 ? new Array(5e8).fill(0) : output)", Exceeded),
}


@pytest.mark.parametrize("case", FAILING_BATCHES)
def test_of_a_batch_only_the_row_that_fails_fails(deno, case):
    result, kind = FAILING_BATCHES[case]
    zero, one, failed, three, four = run(deno, batched(result), *range(5), isolation="evaluator", wall_seconds=2.0)
    assert values([zero, one, three, four]) == [0, 1, 3, 4]
    assert isinstance(failed, kind)


def test_a_batch_that_is_too_slow_is_run_row_by_row(deno):
    source = batched(
        "rows.map(({ output }) => { for (const end = Date.now() + 100; Date.now() < end; ); return output; })"
    )
    assert values(run(deno, source, *range(15), isolation="evaluator", wall_seconds=1.0)) == list(range(15))
