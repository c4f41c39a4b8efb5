"""Sources as the guest describes them, and the digests that name what runs."""

import pytest

from evalcell.errors import EvaluatorError, UsageError
from evalcell.evaluator import Evaluator, program_digest, understand, version_digest
from evalcell.output import Output
from evalcell_sandboxes import Description, Exceeded, Isolation, Kind, Limits, Program, SyntaxProblem, sandbox


def describe(source, **limits):
    return sandbox("wasm").describe(source, Limits(**{"load_seconds": 10.0, **limits}))


def parameters(source):
    return describe(source).hook("evaluate").parameters


def test_every_kind_of_parameter_is_read():
    found = parameters("def evaluate(a, /, b, c=1, *args, d, e='x', **rest): pass")
    assert [(p.name, p.kind, p.default) for p in found] == [
        ("a", Kind.POSITIONAL_ONLY, None),
        ("b", Kind.ORDINARY, None),
        ("c", Kind.ORDINARY, "1"),
        ("args", Kind.VARIADIC, None),
        ("d", Kind.KEYWORD_ONLY, None),
        ("e", Kind.KEYWORD_ONLY, "'x'"),
        ("rest", Kind.ANY_KEYWORD, None),
    ]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("# def evaluate(old): pass\ndef evaluate(new): pass", ["new"]),
        ("text = '''\ndef evaluate(inside): pass\n'''\ndef evaluate(outside): pass", ["outside"]),
        ("def evaluate(first): pass\ndef evaluate(second): pass", ["second"]),
        ("class A:\n    def evaluate(self): pass\ndef evaluate(top): pass", ["top"]),
        ("def outer():\n    def evaluate(inner): pass\ndef evaluate(top): pass", ["top"]),
        ("try:\n    import json\nexcept ImportError:\n    pass\nelse:\n    def evaluate(guarded): pass", ["guarded"]),
        ("evaluate = lambda output: 1", ["output"]),
        ("import functools\n@functools.cache\ndef evaluate(decorated): pass", ["decorated"]),
        ("async def evaluate(waits): pass", ["waits"]),
        ("evaluate: object = lambda annotated: 1", ["annotated"]),
    ],
    ids=["comment", "string", "redefined", "method", "nested", "in-try", "lambda", "decorated", "async", "annotated"],
)
def test_only_the_definition_that_would_run_counts(source, names):
    assert [parameter.name for parameter in parameters(source)] == names


def test_describing_never_executes(tmp_path):
    described = describe("raise SystemExit('executed')\ndef evaluate(output): pass")
    assert isinstance(described, Description)


def test_imports_are_found_with_whether_they_can_be_had():
    source = (
        "import json, os.path\nfrom collections import Counter\nimport ssl\n"
        "try:\n    import numpy\nexcept ImportError:\n    numpy = None\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"
        "def evaluate(output):\n    from sklearn import metrics\nfrom . import sibling\n"
    )
    found = {item.module: item for item in describe(source).imports}
    assert found["json"].present
    assert found["os.path"].present
    assert (found["ssl"].standard, found["ssl"].present) == (True, False)
    assert found["numpy"].optional
    assert found["pandas"].optional
    assert (found["sklearn"].standard, found["sklearn"].optional, found["sklearn"].line) == (False, False, 12)
    assert "." in found


def test_the_metadata_block_is_read_as_toml():
    block = describe(
        '# /// script\n# dependencies = ["a"]\n#\n# [tool.evalcell]\n# output = {range = [0.0, inf]}\n# ///\ndef evaluate(output): pass'
    ).block
    assert block.table == {"dependencies": ["a"], "tool": {"evalcell": {"output": {"range": [0.0, "inf"]}}}}


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("# /// script\n# x = 1\n", "no closing"),
        ("# /// script\n# ///\n# /// script\n# ///\n", "second"),
        ("# /// script\n# x = = 1\n# ///\n", "not valid TOML"),
        ("# /// script\n# [tool.evalcell]\n# set = {k = inf}\n# ///\n", "inf has no place at tool.evalcell.set.k"),
        ("# /// script\n# [tool.evalcell]\n# set = {k = 99999999999999999999999}\n# ///\n", "64 bits"),
        ("# /// script\n# x = 0x" + "f" * 5000 + "\n# ///\n", "64 bits"),
        ("# /// script\n# x = " + "[" * 20_000 + "\n# ///\n", "TOML"),
    ],
    ids=["open", "two", "broken", "infinite", "large", "huge", "deep"],
)
def test_a_broken_block_is_named_and_never_ignored(block, message, write):
    source = Evaluator.from_file(write("e.py", block + "def evaluate(output): pass\n"))
    with pytest.raises(EvaluatorError, match=message):
        understand(source, describe(source.text))


@pytest.mark.parametrize(
    "source",
    [
        "def evaluate(:",
        "(" * 5000,
        "-" * 100_000 + "1",
        "def evaluate(output):\n\treturn 1\n        return 2",
        "return 1",
        "x = '\0'",
        "a" * 200_000 + "(",
    ],
    ids=["typo", "parentheses", "signs", "tabs", "outside", "nul", "long-name"],
)
def test_what_does_not_parse_is_a_syntax_error(source, write):
    described = describe(source)
    assert isinstance(described, SyntaxProblem), described
    with pytest.raises(EvaluatorError) as caught:
        understand(Evaluator.from_file(write("e.py", "x")), described)
    assert caught.value.kind == "syntax"


def test_a_parser_bomb_is_bounded_in_time():
    described = describe(
        "x = " + "[" * 90 + "1" + "]" * 90 + "\n" + "y = (" + "+".join("1" for _ in range(300_000)) + ")\n",
        load_seconds=1.0,
    )
    assert isinstance(described, Exceeded | SyntaxProblem | Description)


def test_a_long_expression_is_no_reason_to_refuse_a_source():
    source = "X = " + " + ".join(["'a'"] * 900) + "\ndef evaluate(output, x=" + " + ".join(["1"] * 900) + "): pass\n"
    assert [parameter.name for parameter in parameters(source)] == ["output", "x"]


def test_a_bomb_in_constant_folding_is_harmless():
    assert isinstance(describe("x = 1 << 10**9\ny = 'a' * 10**12\ndef evaluate(output): pass"), Description)


def test_a_source_over_its_limit_is_refused():
    assert describe("x = 1\n" * 100, source_bytes=100).limit == "source_bytes"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("e.txt", b"", r"must end in \.py or \.ts"),
        ("e.py", b"\xff\xfe\x00", "not UTF-8"),
        ("e.py", b"x" * 2_000_000, "larger than"),
    ],
)
def test_a_file_that_is_no_source_is_refused(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        Evaluator.from_file(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="no file"):
        Evaluator.from_file(tmp_path / "nothing.py")


def test_a_file_without_evaluate_says_what_to_write(write):
    source = Evaluator.from_file(write("e.py", "def score(output): pass\n"))
    with pytest.raises(EvaluatorError, match="def evaluate"):
        understand(source, describe(source.text))


def test_digests_change_with_what_decides_a_score_and_with_nothing_else():
    program = Program(source="def evaluate(output): return 1", filename="e.py")
    base = program_digest(program, "guest 1", Isolation.ROW)
    assert base == program_digest(program, "guest 1", Isolation.ROW)
    others = {
        program_digest(Program(source="other", filename="e.py"), "guest 1", Isolation.ROW),
        program_digest(program, "guest 2", Isolation.ROW),
        program_digest(program, "guest 1", Isolation.EVALUATOR),
        program_digest(Program(source=program.source, filename="e.py", lock="x==1"), "guest 1", Isolation.ROW),
    }
    assert len(others | {base}) == 5
    versions = {
        version_digest(base, Output(), {}, Limits()),
        version_digest(base, Output(kind="continuous", low=0.0), {}, Limits()),
        version_digest(base, Output(kind="continuous", low=0.0, high=1.0), {}, Limits()),
        version_digest(base, Output(), {"k": 1}, Limits()),
        version_digest(base, Output(), {"k": 2}, Limits()),
        version_digest(base, Output(), {}, Limits(wall_seconds=1)),
        version_digest(base, Output(), {}, Limits(), 10),
        version_digest(base, Output(), {}, Limits(), 20),
    }
    assert len(versions) == 8
