import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalcell.errors import UsageError
from evalcell.paths import MISSING, Path

ROW = {
    "output": {"tool_calls": [{"arguments": {"city": "Oslo"}}, {"arguments": None}], "text": "hi"},
    "unit price": 3,
    "items": [{"n": 1}, {"n": None}, {}, {"n": 4}],
    "null": None,
    "big": 123456789012345678901234567890,
    "it's": "quoted",
    "ünï": 1,
}


def find(path, row=ROW):
    found = Path(path).find(json.dumps(row).encode())
    return MISSING if found is MISSING else json.loads(bytes(found))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("output.text", "hi"),
        ("$.output.text", "hi"),
        ("$", ROW),
        ("output.tool_calls[0].arguments", {"city": "Oslo"}),
        ("output.tool_calls[0]['arguments'].city", "Oslo"),
        ("output.tool_calls[-1].arguments", None),
        ("['unit price']", 3),
        ('$["unit price"]', 3),
        (r"['it\'s']", "quoted"),
        ("ünï", 1),
        ("items[0:2]", [{"n": 1}, {"n": None}]),
        ("items[::-1].n", [4, None, 1]),
        ("items[*].n", [1, None, 4]),
        ("items[*]", ROW["items"]),
        ("items[9:]", []),
        ("output[*]", list(ROW["output"].values())),
        ("null", None),
        ("big", ROW["big"]),
    ],
)
def test_a_path_finds_what_it_names(path, expected):
    assert find(path) == expected


@pytest.mark.parametrize(
    "path",
    [
        "nothing",
        "output.nothing",
        "items[4]",
        "items[-5]",
        "output.text.more",
        "items.n",
        "output[0]",
        "null.x",
        "nothing[*]",
        "output.text[*]",
        "null[0:1]",
    ],
)
def test_a_path_that_leads_nowhere_is_missing_which_is_not_null(path):
    assert find(path) is MISSING


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("$..price", "'..'"),
        ("output..text", "'..'"),
        ("items[?(@.n>1)]", "filters"),
        ("items[?n]", "filters"),
        ("", "empty"),
        ("items[", "cannot be read"),
        ("items[a]", "cannot be read"),
        ("items[0:2:0]", "step of 0"),
        ("a b", "cannot be read"),
        ("items[0]n", "cannot be read"),
        ("x" * 2000, "too long"),
        ("items[99999999999999999999]", "cannot be read"),
    ],
)
def test_a_path_that_is_not_supported_is_refused_by_name(path, word):
    with pytest.raises(UsageError, match=word.replace("[", r"\[").replace(".", r"\.")):
        Path(path)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.lists(st.text(min_size=1, max_size=5) | st.integers(-3, 3), min_size=1, max_size=4))
def test_a_path_finds_what_plain_indexing_finds(value, steps):
    text = "$" + "".join(
        f"[{step}]" if isinstance(step, int) else "['" + step.replace("\\", "\\\\").replace("'", "\\'") + "']"
        for step in steps
    )
    try:
        path = Path(text)
    except UsageError:
        assert any(isinstance(step, str) and "\n" in step for step in steps)
        return
    expected = value
    for step in steps:
        try:
            if not isinstance(expected, dict if isinstance(step, str) else list):
                raise KeyError
            expected = expected[step]
        except (KeyError, IndexError):
            assert path.find(json.dumps(value).encode()) is MISSING
            return
    found = path.find(json.dumps(value).encode())
    assert json.loads(bytes(found)) == expected


@given(st.text(max_size=60))
def test_any_text_is_a_path_or_a_usage_error(text):
    try:
        Path(text).find(b'{"a": [1, {"b": 2}]}')
    except UsageError as error:
        assert str(error)
