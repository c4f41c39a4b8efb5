"""Returned values all the way to their records: what is no score is refused there, whatever the guest let through."""

import math

import pytest

from evalcell.records import Record

RANGE = "# /// script\n# [tool.evalcell]\n# output = {range = [0.0, 1.0]}\n# ///\n"
LIE = (
    "class Lie(float):\n"
    "    def __eq__(self, other): return True\n"
    "    __le__ = __ge__ = __eq__\n"
    "    __lt__ = __gt__ = __ne__ = lambda self, other: False\n"
    "    __hash__ = None\n"
    "    def __float__(self): return 0.5\n"
    "    def __repr__(self): return '0.5'\n"
)

REFUSED = {
    "nan": "float('nan')",
    "infinity": "{'score': float('inf')}",
    "overflow": "1e400",
    "long-integer": "10**400",
    "longer-integer": "(sys.set_int_max_str_digits(0), 10**5000)[1]",
    "decimal": "decimal.Decimal('0.5')",
    "complex": "1j",
    "above": "1.5",
    "below": "{'score': -0.1}",
    "just-above": "1.000001",
    "lying-float": "Lie(1000.0)",
    "integer-above": "2",
    "list-above": "[{'name': 'a', 'score': 0.5}, {'name': 'b', 'score': 7}]",
    "label": "'good'",
    "none": "None",
    "empty": "{}",
    "empty-list": "[]",
    "text-score": "{'score': '1'}",
    "list-score": "{'score': [1]}",
    "nested-score": "{'score': {'score': 1}}",
    "text-verdict": "{'score': 1, 'passed': 'yes'}",
    "number-label": "{'score': 1, 'label': 5}",
    "long-name": "{'a' * 100: {'score': 'x'}}",
    "same-names": "[{'name': 'a', 'score': 1}, {'name': 'a', 'score': 0}]",
    "no-names": "[{'score': 1}, {'score': 0}]",
    "thousand-scores": "[{'name': str(n), 'score': 1} for n in range(1000)]",
    "thousand-named": "{'namedScores': {str(n): 1 for n in range(1000)}}",
    "generator": "(n for n in [1])",
    "coroutine-function": "evaluate",
    "surrogate": "{'score': 1, 'explanation': '\\ud800'}",
    "surrogate-key": "{'score': 1, '\\udfff': 1}",
    "bytes": "b'1'",
    "deep": "functools.reduce(lambda inner, _: [inner], range(100), 1)",
    "huge-explanation": "{'score': 1, 'explanation': 'x' * 2**21}",
}
KEPT = {
    "negative-zero": ("-0.0", 0.0),
    "rounding": ("1 + 1e-12", 1.0),
    "boolean": ("True", 1.0),
    "nul": ("{'score': 1, 'explanation': 'a\\0b'}", 1.0),
    "extra-keys": ("{'score': 1, 'row': 7, 'status': 'failed', 'error': {}, 'usage': None}", 1.0),
    "imitated-record": ("{'score': 0.5, 'name': 'other', 'evaluator': 'x', 'version': 'y', 'sandbox': 'none'}", 0.5),
    "denormal": ("5e-324", 5e-324),
}


@pytest.fixture
def result_of(score):
    """The records of many expressions, each returned on a row of its own."""

    def result_of(expressions: dict[str, str]) -> dict[str, Record]:
        source = f"{RANGE}import decimal, functools, sys\n{LIE}def evaluate(output): return eval(output)\n"
        scored = score(source, [{"output": expression} for expression in expressions.values()])
        assert len(scored) == len(expressions)
        return {name: scored[row] for row, name in enumerate(expressions)}

    return result_of


def test_what_is_no_score_is_refused_by_the_time_it_is_a_record(result_of):
    for name, record in result_of(REFUSED).items():
        assert record.status == "failed", name
        assert record.error is not None
        assert record.error.kind == "invalid_result", (name, record.error)
        assert len(record.error.message) < 1_000, name
        assert record.score is None


def test_what_is_a_score_is_kept_and_decides_nothing_else(result_of):
    for name, record in result_of({name: expression for name, (expression, _) in KEPT.items()}).items():
        assert record.status == "scored", (name, record.error)
        assert record.score is not None
        assert math.isfinite(record.score)
        assert record.score == KEPT[name][1]
        assert (record.evaluator, record.sandbox, record.error) == ("evaluator", "wasm", None), name


def test_a_field_that_nobody_bound_is_not_in_the_sandbox(score):
    source = (
        "import gc, re, sys\n"
        "def evaluate(output):\n"
        "    frame, found = sys._getframe(), [repr(gc.get_objects())]\n"
        "    while frame:\n"
        "        found += [repr(dict(frame.f_locals)), repr(dict(frame.f_globals))]\n"
        "        frame = frame.f_back\n"
        "    return {'label': ' '.join(sorted(set(re.findall('nonce-[0-9]{4}', ''.join(found)))))}\n"
    )
    row = {"output": "nonce-1111", "reference": "nonce-2222", "id": "nonce-3333", "secret": {"a": ["nonce-4444"]}}
    assert score(source, [row, row])[1].label == "nonce-1111"
