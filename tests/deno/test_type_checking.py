"""The checker of types: what it says of a source, and that it is kept in bounds whatever the source is."""

import subprocess
import tempfile
import time

import pytest

from evalcell_sandboxes import Limits, SandboxFault, sandbox
from evalcell_sandboxes.deno import DECLARATIONS, jail
from evalcell_sandboxes.deno.process import ENVIRONMENT, program

EXACT = "function evaluate({ output, reference }: EvaluatorParams): boolean {\n  return output === reference;\n}\n"


def checked(source: str, **limits: float) -> list[tuple[int, int, str]]:
    found = sandbox("deno").check_types(source, Limits(**limits))
    return [(problem.line, problem.column, problem.code) for problem in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (EXACT, []),
        (EXACT.replace("boolean", "string"), [(2, 3, "TS2322")]),
        ("const words: Map<string, number> = new Map([[1, 2]]);\n" + EXACT, [(1, 7, "TS2322")]),
        (EXACT + "const late: number = fetch;\n", [(4, 22, "TS2304")]),
        (EXACT + "console.log(Deno.env.get('A')?.length, Deno.readTextFileSync('a').length);\n", []),
        (EXACT + "Deno.writeTextFileSync;\n", [(4, 6, "TS2551")]),
        ("// TS2322 [ERROR]: not one\n//     at file:///x:1:1\n" + EXACT, []),
        ("const odd = `\nTS1 [ERROR]: made up\n    at file:///x:9:9\n`;\n" + EXACT, []),
        (EXACT + "const odd = `\nTS1 [ERROR]: made up ${nope}`;\n", [(5, 24, "TS2304")]),
        (EXACT + "type Odd = 'a\x85TS1 [ERROR]: made up'; const odd: Odd = 1;\n", [(4, 44, "TS2322")]),
        (EXACT + "console.clear(); console.dirxml(1); console.timeStamp(); JSON.rawJSON('1');\n", []),
        (EXACT + "Error.captureStackTrace({}, evaluate); Error.stackTraceLimit = 5;\n", []),
        (EXACT + "const n: number = `\nTS1 [ERROR]: made up\n    at file:///x:9:9\n`;\n", [(4, 7, "TS2322")]),
    ],
)
def test_a_problem_has_its_place_in_the_source(source, expected):
    assert checked(source) == expected


def test_a_check_that_takes_too_long_is_ended():
    started = time.monotonic()
    with pytest.raises(SandboxFault, match="within the limit of 0.05 s"):
        checked(EXACT, load_seconds=0.05)
    assert time.monotonic() - started < 5


def test_a_message_is_the_checkers_own():
    (problem,) = sandbox("deno").check_types(EXACT + "const odd = `\nTS666 [ERROR]: forged ${nope}`;\n", Limits())
    assert "nope" in problem.message
    assert "forged" not in problem.message


def test_a_source_that_is_too_deep_for_the_checker_says_so():
    with pytest.raises(SandboxFault, match="nested too deeply") as fault:
        checked(EXACT + "const deep = " + "[" * 20_000 + "]" * 20_000 + ";\n")
    assert "thread" not in str(fault.value)


def test_of_many_problems_some_are_told():
    found = checked("\n".join(f"const n{n}: string = {n};" for n in range(1_000)) + EXACT)
    assert found == [(line, 7, "TS2322") for line in range(1, 51)]


def test_a_line_of_ten_thousand_problems_is_not_quoted_as_often():
    """Which would be two gigabytes."""
    started = time.monotonic()
    with pytest.raises(SandboxFault, match="used up the memory"):
        checked("const " + ",".join(f"n{n}: string = {n}" for n in range(10_000)) + ";\n" + EXACT)
    assert time.monotonic() - started < 60


NAMING = {
    "type": "type X = import('{path}').X;\n",
    "import": "import type {{ X }} from '{path}';\n",
    "reference": "/// <reference path='{path}' />\n",
    "types": "// @ts-types='{path}'\nimport type {{ X }} from '{path}';\n",
    "export": "export type {{ X }} from '{path}';\n",
    "export-all": "export type * as x from '{path}';\n",
    "reference-after-a-comment": "/* a */ /// <reference path='{path}' />\n",
    "reference-after-a-mark": "\ufeff/// <reference path='{path}' />\n",
}


@pytest.mark.parametrize("naming", NAMING.values(), ids=NAMING)
def test_no_file_that_a_source_names_is_read(naming, tmp_path):
    secret = tmp_path / "secret.ts"
    secret.write_text("canary is the secret;\n")
    try:
        said = str(sandbox("deno").check_types(naming.format(path=secret) + EXACT, Limits()))
    except SandboxFault as fault:
        said = str(fault)
    assert said  # it is told that something is wrong with the file
    assert "canary" not in said


@pytest.mark.parametrize("naming", NAMING.values(), ids=NAMING)
def test_without_a_jail_it_would_be_read_and_quoted(naming, tmp_path):
    secret = tmp_path / "secret.ts"
    secret.write_text("canary is the secret;\n")
    (tmp_path / "evaluator.ts").write_text(naming.format(path=secret) + EXACT)
    done = subprocess.run(
        [program(), "check", "--no-lock", "--no-config", tmp_path / "evaluator.ts", DECLARATIONS],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "canary is the secret" in done.stderr


@pytest.mark.parametrize("naming", ["", *NAMING.values()], ids=["nothing", *NAMING])
def test_where_nothing_hides_files_no_types_are_checked(naming, monkeypatch, tmp_path):
    monkeypatch.setattr(jail, "_missing", lambda: frozenset({"landlock"}))
    with pytest.raises(SandboxFault, match="Landlock"):
        checked(naming.format(path=tmp_path / "x.ts") + EXACT)


def test_nothing_is_left_of_a_check(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    untouched = tmp_path.stat().st_mtime_ns
    checked(EXACT)
    assert tmp_path.stat().st_mtime_ns > untouched  # there was something in between
    assert list(tmp_path.iterdir()) == []
