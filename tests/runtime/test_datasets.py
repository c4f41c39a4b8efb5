import json
import os
import sys
import tracemalloc
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcell import datasets
from evalcell.datasets import opened
from evalcell.datasets.json_text import Elements, Lines
from evalcell.errors import DatasetError


@pytest.fixture
def read(tmp_path):
    def read(content: bytes, name: str = "data"):
        path = tmp_path / name
        path.write_bytes(content)
        with opened(str(path)) as rows:
            return list(rows)

    return read


def texts(rows):
    return [row.text for row in rows]


def test_jsonl_gives_one_row_a_line_with_its_number(read):
    rows = read(b'{"a": 1}\n\n  {"a": 2}\r\n{"a": 3}')
    assert texts(rows) == [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}']
    assert [(row.index, row.line) for row in rows] == [(0, 1), (1, 3), (2, 4)]


def test_a_malformed_line_is_a_row_for_somebody_else_to_judge(read):
    assert texts(read(b'{"a": 1}\n{broken\n{"a": 2}\n')) == [b'{"a": 1}', b"{broken", b'{"a": 2}']


def test_a_byte_order_mark_is_no_part_of_the_first_row(read):
    assert texts(read(b'\xef\xbb\xbf{"a": 1}\n')) == [b'{"a": 1}']
    assert texts(read(b'\xef\xbb\xbf[{"a": 1}]')) == [b'{"a": 1}']


@pytest.mark.parametrize("content", [b"[]", b"  [ ]\n", b"", b"\n\n"])
def test_an_empty_dataset_has_no_rows(read, content):
    assert read(content) == []


def test_a_json_list_is_streamed_element_by_element(read):
    content = b' [ {"a": [1, "]"]} ,\n{"b": "\\"}"}, 12, "x" ]\n '
    assert texts(read(content)) == [b'{"a": [1, "]"]}', b'{"b": "\\"}"}', b"12", b'"x"']


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"a": 1}', "ends in the middle of element 0"),
        (b'[{"a": 1}, {"b": "]', "ends in the middle of element 1"),
        (b'[{"a": 1},]', "Element 1"),
        (b'[{"a": 1}}, 2]', "goes on after element"),
        (b"[1] 2", "goes on after"),
    ],
)
def test_a_broken_list_is_an_error_that_says_where(read, content, message):
    with pytest.raises(DatasetError, match=message):
        read(content)


@pytest.mark.parametrize("element", [b'{"a": }', b'{"a": 1} {"b": 2}', b'{"a": "\xff"}'])
def test_a_malformed_element_is_a_row_for_somebody_else_to_judge(read, element):
    assert texts(read(b"[1, " + element + b", 2]"))[1:2] == [element]


def test_rows_before_a_broken_end_are_read(tmp_path):
    (tmp_path / "data").write_bytes(b'[{"a": 1}, {"a": 2}, {"a')
    with opened(str(tmp_path / "data")) as rows:
        assert next(rows).text == b'{"a": 1}'
        assert next(rows).text == b'{"a": 2}'
        with pytest.raises(DatasetError):
            next(rows)


def test_a_large_element_is_not_built_in_memory(tmp_path):
    element = b'{"a": [' + b",".join([b'"x"'] * 500_000) + b"]}"
    (tmp_path / "data").write_bytes(b"[" + element + b"]")
    tracemalloc.start()
    try:
        with opened(str(tmp_path / "data")) as rows:
            assert [len(row.text) for row in rows] == [len(element)]
        assert tracemalloc.get_traced_memory()[1] < 6 * len(element)
    finally:
        tracemalloc.stop()


@pytest.fixture
def pipe(monkeypatch):
    """Standard input as a pipe, with a function that writes into it."""
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: reader))
    yield writer
    os.close(reader)


def test_a_pipe_without_rows_for_now_says_so(pipe):
    with opened("-") as rows:
        assert next(rows) is None
        os.write(pipe, b'\n{"a": 1}\n{"a"')
        row = next(datasets.only_rows(rows))
        assert (row.text, row.line) == (b'{"a": 1}', 2)
        assert next(rows) is None
        os.write(pipe, b": 2}\n")
        assert next(datasets.only_rows(rows)).text == b'{"a": 2}'
        os.close(pipe)
        assert list(datasets.only_rows(rows)) == []


def test_a_byte_order_mark_may_come_alone(pipe):
    with opened("-") as rows:
        os.write(pipe, b"\xef\xbb\xbf")
        assert next(rows) is None
        os.write(pipe, b'[{"a": 1}]')
        os.close(pipe)
        assert texts(datasets.only_rows(rows)) == [b'{"a": 1}']


def test_a_missing_standard_input_is_said_to_be_missing(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DatasetError, match="there is none"), opened("-"):
        pass


def test_a_list_in_a_pipe_is_read_as_it_comes(pipe):
    with opened("-") as rows:
        os.write(pipe, b'[{"a": "]\\')
        assert next(rows) is None
        os.write(pipe, b'""}, 2')
        assert next(datasets.only_rows(rows)).text == b'{"a": "]\\""}'
        os.write(pipe, b"]")
        os.close(pipe)
        assert texts(datasets.only_rows(rows)) == [b"2"]


def test_a_missing_dataset_is_named():
    with pytest.raises(DatasetError, match="no dataset 'nowhere.jsonl'"), opened("nowhere.jsonl"):
        pass


def test_a_directory_is_no_dataset(tmp_path):
    with pytest.raises(DatasetError, match="cannot be read"), opened(str(tmp_path)):
        pass


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=3),
            st.integers() | st.text(max_size=20) | st.floats(allow_nan=False, allow_infinity=False),
            max_size=3,
        ),
        max_size=8,
    ),
    st.integers(1, 40),
    st.booleans(),
)
def test_rows_do_not_depend_on_where_the_chunks_end(items, chunk, ascii_only):
    as_list = json.dumps(items, ensure_ascii=ascii_only).encode()
    as_lines = "".join(json.dumps(item, ensure_ascii=ascii_only) + "\n" for item in items).encode()
    for content in (as_list, as_lines):
        chunks = [content[start : start + chunk] for start in range(0, len(content), chunk)]
        splitter = Elements("test") if content is as_list else Lines("test")
        rows = [row for piece in chunks for row in splitter.feed(piece)] + list(splitter.end())
        assert [json.loads(row.text) for row in rows] == items
