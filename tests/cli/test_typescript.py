"""TypeScript at the command: run, check with its types, new, and what is refused."""

import json

import pytest

ROWS = [{"output": "Oslo", "reference": "Oslo"}, {"output": "Lyon", "reference": "Paris"}]
EXACT = "function evaluate({ output, reference }: EvaluatorParams): boolean {\n  return output === reference;\n}\n"


@pytest.fixture
def ts(evalcell, write, rows):
    """Runs a command on a source in TypeScript and two rows."""

    def ts(command, source, *arguments, **options):
        return evalcell(command, write("judge.ts", source), "--data", rows(ROWS), *arguments, **options)

    return ts


def test_a_file_in_typescript_is_run_in_deno_without_being_asked(ts):
    done = ts("run", EXACT, "--json")
    assert done.code == 0, done.err
    assert done.json()["scores"]["judge"]["mean"] == 0.5
    assert done.json()["sandbox"] == "deno"


@pytest.mark.parametrize(
    "form",
    [
        "export function evaluate({ output, reference }: EvaluatorParams) { return output === reference; }",
        "export async function evaluate({ output, reference }: EvaluatorParams) { return output === reference; }",
        "export const evaluate = ({ output, reference }: EvaluatorParams) => output === reference;",
        "export default ({ output, reference }: EvaluatorParams) => output === reference;",
        "export default async function judge({ output, reference }: EvaluatorParams) { return output === reference; }",
        "const judge = async ({ output: a, reference: b = 'Paris' }: EvaluatorParams) => a === b;\nexport { judge as evaluate };",
    ],
)
def test_evaluate_may_be_written_in_any_of_these_ways(ts, form):
    done = ts("run", form, "--json")
    assert done.code == 0, done.err
    assert done.json()["scores"]["judge"]["mean"] == 0.5


def test_check_says_what_the_checker_of_types_says_and_that_it_runs_all_the_same(ts):
    source = EXACT.replace("return output", "const n: number = 'x';\n  setTimeout;\n  return output")
    done = ts("check", source, "--json")
    assert [(found["line"], found["column"], found["code"]) for found in done.json()["types"]] == [
        (2, 9, "TS2322"),
        (3, 3, "TS2304"),
    ]
    assert done.code == 1  # since setTimeout is not there, whatever its type
    shown = ts("check", EXACT.replace("boolean", "number"))
    assert shown.code == 0
    assert "line 2, column 3: Type 'boolean' is not assignable to type 'number'.  (TS2322)" in shown.out
    assert "deno (Deno 2" in shown.out
    assert "it is written in TypeScript, which runs in Deno" in shown.out


def test_the_checker_of_types_reads_no_file_that_a_source_names(ts, tmp_path):
    """Deno's would, and quote what it finds there."""
    (tmp_path / "secret.ts").write_text("canary is the secret;\n")
    for named in (
        f"type Secret = import('{tmp_path}/secret.ts').X;\n",
        f"/// <reference path='{tmp_path}/secret.ts' />\n",
        f"import type {{ X }} from '{tmp_path}/secret.ts';\n",
    ):
        done = ts("check", named + EXACT, "--json")
        assert done.code == 0, done.err
        assert "canary is" not in done.out + done.err


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ("import { x } from 'npm:lodash';\nx();\n" + EXACT, [], "Line 1 imports 'npm:lodash', but an evaluator is one file"),
        ("function score({ output }: EvaluatorParams) {}", [], "Add `function evaluate({ output, reference }: EvaluatorParams) {`"),
        ("function evaluate(row: EvaluatorParams) {}", [], "does not take one object that names its fields"),
        ("// /// script\n// dependencies = ['lodash']\n// ///\n" + EXACT, [], "in TypeScript there are no packages"),
        ("// /// script\n// requires-python = '>=3.11'\n// ///\n" + EXACT, [], "remove requires-python"),
        ("// /// script\n// [tool.evalcell]\n// tresholds = 1\n// ///\n" + EXACT, [], "unknown key 'tresholds'"),
        ("const x: = 3;\n" + EXACT, [], "judge.ts, line 1: Unexpected token"),
        (EXACT, ["--sandbox", "wasm"], "TypeScript runs in 'deno' alone"),
        (EXACT, ["--network", "full"], "which only a container can have"),
        (EXACT, ["--dep", "lodash"], "in TypeScript there are no packages"),
        (EXACT, ["--bind", "outptu=output"], "Did you mean 'output'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_with_the_next_step(ts, source, arguments, message):
    done = ts("run", source, *arguments)
    assert done.code == 2
    assert message in done.err


def test_python_is_not_run_in_deno(evalcell, write, rows):
    file = write("judge.py", "def evaluate(output): return 1\n")
    done = evalcell("run", file, "--data", rows(ROWS), "--sandbox", "deno")
    assert done.code == 2
    assert "speaks TypeScript, not Python" in done.err


def test_a_row_that_fails_says_where_in_the_users_own_source(ts):
    source = "interface Long {\n  a: string;\n}\n" + EXACT.replace("return output", "return (null as any).x + output")
    done = ts("check", source, "--json")
    errors = [item["records"][0]["error"] for item in done.json()["tries"]]
    assert [error["kind"] for error in errors] == ["raised", "raised"]
    assert "at evaluate (judge.ts:5:24)" in errors[0]["traceback"]


def test_what_is_granted_and_shipped_is_read_as_in_deno(ts, tmp_path, monkeypatch):
    (tmp_path / "words.txt").write_text("Oslo läßt\n", encoding="utf-8")
    monkeypatch.setenv("WORD", "granted-value")
    source = (
        "// /// script\n// [tool.evalcell]\n// assets = ['words.txt']\n// env = ['WORD']\n// ///\n"
        "const words = Deno.readTextFileSync('words.txt').split(' ');\n"
        "export function evaluate({ output }: EvaluatorParams) {\n"
        "  return { score: words.includes(output) ? 1 : 0, explanation: `${Deno.env.get('WORD')}` };\n}\n"
    )
    assert "Grant it with --env WORD" in ts("run", source).err
    done = ts("check", source, "--env", "WORD", "--json")
    records = [item["records"][0] for item in done.json()["tries"]]
    assert [record["score"] for record in records] == [1.0, 0.0]
    assert "granted-value" not in done.out


def test_fit_aggregate_and_batches_work_as_in_python(ts):
    source = (
        "let seen = 0;\n"
        "export function fit(rows: EvaluatorParams[]) { seen = rows.length; }\n"
        "export function evaluate({ output }: EvaluatorParams) { return seen; }\n"
        "export function evaluate_batch(rows: EvaluatorParams[]) { return rows.map(() => seen * 10); }\n"
        "export function aggregate(results: EvaluatorResult[]) { return { sum: results.reduce((s, r) => s + r.score!, 0) }; }\n"
    )
    fresh = ts("run", source, "--json").json()
    assert (fresh["scores"]["judge"]["mean"], fresh["aggregates"]["sum"]) == (2.0, 4.0)
    shared = ts("run", source, "--isolation", "evaluator", "--json").json()
    assert (shared["scores"]["judge"]["mean"], shared["aggregates"]["sum"]) == (20.0, 40.0)


@pytest.mark.parametrize("example", ["starter", "json_distance", "hashing_similarity"])
def test_new_in_typescript_runs_and_type_checks_at_once(evalcell, tmp_path, example):
    made = evalcell("new", "mine", "--typescript", "--from", example)
    assert made.code == 0, made.err
    assert {file.name for file in tmp_path.iterdir()} == {"mine.ts", "mine.jsonl", "evalcell.d.ts"}
    done = evalcell("run", "mine.ts", "--data", "mine.jsonl", "--json")
    assert (done.code, done.json()["rows"]) == (0, 3)
    assert evalcell("check", "mine.ts", "--json").json()["types"] == []
    (tmp_path / "evalcell.d.ts").write_text("// mine\n")
    assert evalcell("new", "another.ts", "--from", example).code == 0
    assert (tmp_path / "evalcell.d.ts").read_text() == "// mine\n"


def test_the_same_file_gives_the_same_scores_on_any_number_of_workers(evalcell, write, rows):
    source = "export const evaluate = ({ output }: EvaluatorParams) => Math.random() + output;\n"
    data = rows([{"output": n} for n in range(200)])
    file = write("judge.ts", source)
    lines = [evalcell("run", file, "--data", data, "--out", "-", "--workers", n).out.splitlines() for n in (1, 2)]
    scores = [[json.loads(line)["score"] for line in each if line.startswith("{")] for each in lines]
    assert len(scores[0]) == 200
    assert scores[0] == scores[1]


def test_a_module_that_waits_for_ever_is_an_error_in_words(evalcell, write, rows):
    source = "await new Promise(() => {});\nexport function evaluate({ output }: any) { return 1 }\n"
    done = evalcell("run", write("waits.ts", source), "--data", rows([{"output": 1}]))
    assert done.code == 2
    assert "The module could not be loaded: the module awaits something at its top level" in done.err
    assert "Invalid(" not in done.err
