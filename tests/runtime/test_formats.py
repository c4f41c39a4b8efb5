"""CSV, Parquet, compressed data and what comes through a pipe: the same rows, whatever they are written in."""

import bz2
import collections
import csv
import datetime
import decimal
import fcntl
import gzip
import io
import json
import os
import resource
import sys
import threading
from types import SimpleNamespace

import numpy
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcell.datasets import Dataset, Format, in_memory, only_rows, opened
from evalcell.datasets.csv_text import Records
from evalcell.datasets.streams import FileStream
from evalcell.errors import DatasetError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = [{"output": f"answer {n}", "reference": 'ansßer, "x"\n;'} for n in range(5)]
JSONL = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()


def gzipped(content: bytes) -> bytes:
    """Without the time, which would give a test another name in each process that collects it."""
    return gzip.compress(content, mtime=0)


@pytest.fixture
def read(tmp_path):
    def read(content: bytes, name: str, form: Format | None = None):
        path = tmp_path / name
        path.write_bytes(content)
        with opened(str(path), form) as rows:
            return list(rows)

    return read


def values(rows):
    return [json.loads(row.text) for row in rows]


def as_csv(rows, **dialect) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), **dialect)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def as_parquet(table, **options) -> bytes:
    out = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.Table.from_pylist(table), out, **options)
    return out.getvalue()


FILES = {
    "rows.jsonl": JSONL,
    "rows.json": json.dumps(ROWS).encode(),
    "rows.csv": as_csv(ROWS),
    "rows.tsv": as_csv(ROWS, delimiter="\t"),
    "rows.parquet": as_parquet(ROWS),
    "rows.jsonl.gz": gzipped(JSONL),
    "two-members.jsonl.gz": gzipped(JSONL[:40]) + gzipped(JSONL[40:]) + b"\0" * 512,
    "rows.jsonl.zst": zstd.compress(JSONL),
    "two-frames.zst": zstd.compress(JSONL[:40]) + zstd.compress(JSONL[40:]),
    "rows.csv.gz": gzipped(as_csv(ROWS)),
    "rows.parquet.gz": gzipped(as_parquet(ROWS)),
    "list-named.jsonl": json.dumps(ROWS).encode(),
    "semicolons.csv": as_csv(ROWS, delimiter=";"),
    "unix-lines.csv": as_csv(ROWS, lineterminator="\n"),
    "byte-order-mark.csv": b"\xef\xbb\xbf" + as_csv(ROWS),
    "all-quoted.csv": as_csv(ROWS, quoting=csv.QUOTE_ALL),
    "padded.gz": gzipped(JSONL) + b"\0" * 40_000,
    "skippable.zst": b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + zstd.compress(JSONL),
}


@pytest.mark.parametrize("name", FILES)
def test_the_same_rows_come_out_of_every_file(read, name):
    assert values(read(FILES[name], name)) == ROWS


@pytest.fixture
def through_a_pipe(monkeypatch):
    """Feeds standard input from a thread, a little at a time."""
    threads = []

    def feed(content: bytes, form: Format | None = None):
        reader, writer = os.pipe()
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: reader))

        def write() -> None:
            for start in range(0, len(content), 1000):
                os.write(writer, content[start : start + 1000])
            os.close(writer)

        threads.append(threading.Thread(target=write))
        threads[-1].start()
        try:
            with opened("-", form) as rows:
                return list(only_rows(rows))
        finally:
            os.close(reader)

    yield feed
    for thread in threads:
        thread.join(10)


@pytest.mark.parametrize("name", [name for name in FILES if name != "rows.tsv"])
def test_standard_input_is_recognised_by_how_it_begins(through_a_pipe, name):
    assert values(through_a_pipe(FILES[name])) == ROWS


def test_a_format_that_is_named_wins_over_name_and_content(read, through_a_pipe):
    assert values(read(FILES["rows.csv"], "rows.jsonl", Format.CSV)) == ROWS
    assert values(read(b"answer\n1\n", "rows", Format.CSV)) == [{"answer": "1"}]
    assert values(through_a_pipe(FILES["rows.tsv"], Format.TSV)) == ROWS
    assert [row.text for row in read(b"a,b\n1,2\n", "rows.csv", Format.JSONL)] == [b"a,b", b"1,2"]


@pytest.mark.parametrize(
    ("content", "name", "form", "message"),
    [
        (b'{"a": 1}', "x.json", Format.JSON, "not a JSON list.*--format jsonl"),
        (b'{"a": 1}', "x.parquet", None, "not a Parquet file"),
        (b"PAR1 but no more", "x", None, "Parquet file .* cannot be read"),
        (JSONL.decode().encode("utf-16"), "x.csv", None, "UTF-16.*Save it as UTF-8"),
        (b"PK\x03\x04 and so on", "x.xlsx", None, "workbook.*save it as CSV"),
        (gzipped(JSONL)[:-20], "x.gz", None, "cut off"),
        (gzipped(JSONL)[:-8] + b"\0" * 8, "x.gz", None, "damaged"),
        (zstd.compress(JSONL)[:-5], "x.zst", None, "cut off"),
        (gzipped(JSONL) + b"garbage", "x.gz", None, "damaged"),
        (b"a,a\n1,2\n", "x.csv", None, "line 1 .* names the column 'a' twice"),
        (b"\n\na,h\xe9\n1,2\n", "x.csv", None, "header on line 3 .* not UTF-8"),
        (b"a,b\rc\n1,2\n", "x.csv", None, "header on line 1 .* carriage return"),
        (gzipped(gzipped(JSONL)), "x.jsonl.gz", None, "compressed twice"),
        (bz2.compress(JSONL), "x.jsonl", None, "bzip2.*gzip or zstd"),
        (JSONL.decode().encode("utf-16"), "x", Format.CSV, "UTF-16"),
        (b'a,b\n1,2\n3,"4\n5,6\n', "x.csv", None, "line 3 .* quote that is never closed"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_says_why(read, content, name, form, message):
    with pytest.raises(DatasetError, match=message):
        read(content, name, form)


def test_a_csv_row_that_does_not_fit_its_header_fails_alone_and_says_where(read):
    rows = read(b'a,b\n1,2\n\n3\n"4\r\n4",5\n6,7,8\n9,\xff\n10,\n', "x.csv")
    assert [(row.index, row.line, row.problem) for row in rows] == [
        (0, 2, ""),
        (1, 4, "has 1 cells, and the header names 2 columns"),
        (2, 5, ""),
        (3, 7, "has 3 cells, and the header names 2 columns"),
        (4, 8, "is not UTF-8 text"),
        (5, 9, ""),
    ]
    assert json.loads(rows[2].text) == {"a": "4\r\n4", "b": "5"}


def test_cells_are_text_as_it_stands_there(read):
    cells = ["007", "1.50", "true", "null", "NaN", "", " x ", '{"a": 1}', "=1+1", '5" disk']
    content = (
        ",".join(f"c{n}" for n in range(len(cells))) + "\n" + ",".join(cells[:-3]) + ',"{""a"": 1}",=1+1,5" disk\n'
    )
    assert values(read(content.encode(), "x.csv")) == [{f"c{n}": cell for n, cell in enumerate(cells)}]


def test_a_column_without_a_name_is_called_by_its_place(read):
    """As the index that pandas writes, and what a comma too many at the end of every line makes."""
    assert values(read(b",output,\n0,a,\n", "x.csv")) == [{"column 1": "0", "output": "a", "column 3": ""}]


@settings(deadline=None)
@given(st.text(st.sampled_from('x," \n\r'), max_size=40), st.integers(1, 7))
def test_any_text_is_cut_into_the_same_rows_whatever_the_chunks(text, chunk):
    def cut(pieces):
        reader, rows = Records("test", ","), []
        try:
            for piece in pieces:
                rows += reader.feed(piece)
            rows += reader.end()
        except DatasetError as error:
            return rows, str(error)
        return rows, None

    content = b"a,b\n" + text.encode()
    assert cut([content[start : start + chunk] for start in range(0, len(content), chunk)]) == cut([content])


def test_a_cell_may_be_larger_than_the_csv_module_allows_by_itself(read):
    before = csv.field_size_limit()
    assert values(read(b"a,b\n1," + b"x" * 500_000 + b"\n", "x.csv")) == [{"a": "1", "b": "x" * 500_000}]
    assert csv.field_size_limit() == before


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.text(st.sampled_from('ab,;"\n\t é'), max_size=8), min_size=2, max_size=2), min_size=1, max_size=6
    ),
    st.integers(1, 30),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_csv_rows_do_not_depend_on_where_the_chunks_end(records, chunk, quoting, line_end):
    out = io.StringIO()
    csv.writer(out, quoting=quoting, lineterminator=line_end).writerows([["one", "two"], *records])
    content = out.getvalue().encode()
    reader = Records("test", None)
    pieces = [content[start : start + chunk] for start in range(0, len(content), chunk)]
    rows = [row for piece in pieces for row in reader.feed(piece)] + list(reader.end())
    assert values(rows) == [{"one": one, "two": two} for one, two in records]


NESTED = pa.table(
    {
        "number": pa.array([1.5, None, float("nan")]),
        "integer": pa.array([2**62, 0, -1], pa.int64()),
        "flag": [True, False, None],
        "items": pa.array([[{"name": "a", "tags": ["x"]}], [], None]),
        "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "when": pa.array(
            [datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, datetime.UTC), None, None], pa.timestamp("us", "UTC")
        ),
        "precise": pa.array([1_700_000_000_000_000_001, None, None], pa.timestamp("ns")),
        "day": pa.array([datetime.date(2026, 1, 2), None, None]),
        "price": pa.array([decimal.Decimal("12.3400"), None, None]),
        "raw": pa.array([b"\x00\xff", None, None]),
        "kind": pa.array(["x", "y", None]).dictionary_encode(),
    }
)


def test_parquet_columns_keep_their_types(read):
    first, second, third = values(read(as_parquet(NESTED), "x.parquet"))
    assert first == {
        "number": 1.5,
        "integer": 2**62,
        "flag": True,
        "items": [{"name": "a", "tags": ["x"]}],
        "map": {"k": 1},
        "when": "2026-01-02T03:04:05.678901Z",
        "precise": "2023-11-14T22:13:20.000000001",
        "day": "2026-01-02",
        "price": 12.34,
        "raw": "AP8=",
        "kind": "x",
    }
    assert (second["items"], second["map"], second["integer"]) == ([], {}, 0)
    assert (third["number"], third["items"]) == (None, None)


def test_one_odd_value_in_a_parquet_file_fails_its_row_alone(read):
    text = pa.array([b"fine", b"\xff\xfe", b"fine"], pa.binary()).view(pa.string())
    rows = read(as_parquet(pa.table({"a": text})), "x.parquet")
    assert [bool(row.problem) for row in rows] == [False, True, False]
    assert rows[1].place() == "row 1"


def test_parquet_is_read_one_row_group_at_a_time(tmp_path):
    """A file of many row groups is never in memory whole: what Arrow holds at a time stays far below its size."""
    path = tmp_path / "large.parquet"
    blob = ["x" * 1000] * 1000
    with pq.ParquetWriter(
        path, pa.schema({"output": pa.string(), "n": pa.int64()}), compression="none", use_dictionary=False
    ) as out:
        for group in range(60):
            out.write_table(pa.table({"output": blob, "n": [group] * 1000}))
    pa.default_memory_pool().release_unused()
    before, most, count = pa.total_allocated_bytes(), 0, 0
    with opened(str(path)) as rows:
        for _ in only_rows(rows):
            count += 1
            if count % 1000 == 0:
                most = max(most, pa.total_allocated_bytes() - before)
    assert count == 60_000
    assert most < 15_000_000 < path.stat().st_size


def test_progress_through_a_file_follows_its_rows(tmp_path):
    for name, content in FILES.items():
        if name == "padded.gz":
            continue  # most of it is padding
        (tmp_path / name).write_bytes(content)
        with opened(str(tmp_path / name)) as rows:
            count = len(list(only_rows(rows)))
            assert rows.fraction(0) == 0.0, name
            assert 0 < rows.fraction(count // 2) < 1, name
            assert rows.fraction(count) == pytest.approx(1.0), name


def test_a_pipe_has_no_known_size(through_a_pipe, monkeypatch):
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: reader))
    os.write(writer, JSONL)
    os.close(writer)
    with opened("-") as rows:
        assert len(list(only_rows(rows))) == 5
        assert rows.fraction(3) is None
    os.close(reader)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        tuple(ROWS),
        iter(ROWS),
        pa.Table.from_pylist(ROWS),
        polars.DataFrame(ROWS),
        polars.DataFrame(ROWS).to_pandas(),
    ],
    ids=["list", "tuple", "iterator", "arrow", "polars", "pandas"],
)
def test_rows_in_memory_are_a_dataset_too(rows):
    assert values(in_memory(rows)) == ROWS


def test_values_that_json_has_no_word_for_are_written_as_the_nearest_it_has():
    row = {"a": numpy.int64(3), "b": numpy.array([[1.5, 2.5]]), "c": decimal.Decimal("1.20"), "d": {1, 2}, "e": b"x"}
    assert values(in_memory([collections.ChainMap({"a": 1})])) == [{"a": 1}]
    times = {
        "a": numpy.datetime64("2026-01-02T03:04:05.000000006"),
        "b": numpy.datetime64("NaT"),
        "e": numpy.array([5], "timedelta64[s]"),
        "f": pandas.NaT,
        "c": pandas.NA,
        "d": float("inf"),
    }
    assert values(in_memory([times])) == [
        {"a": "2026-01-02T03:04:05.000000006", "b": None, "e": ["PT5S"], "f": None, "c": None, "d": None}
    ]
    assert values(in_memory([row])) == [{"a": 3, "b": [[1.5, 2.5]], "c": 1.2, "d": [1, 2], "e": "eA=="}]


def test_a_row_in_memory_that_json_cannot_hold_fails_alone():
    rows = list(in_memory([{"a": 1}, {"a": object()}, {"a": "\ud800"}, {"a": 2}]))
    assert [bool(row.problem) for row in rows] == [False, True, True, False]


@pytest.mark.parametrize("data", [{"a": 1}, 12, None, b"rows"])
def test_what_is_no_dataset_is_refused(data):
    with pytest.raises(DatasetError, match="A dataset is a path, an iterable of dicts or a table"):
        in_memory(data)


def test_without_pyarrow_a_parquet_file_says_how_to_get_it(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DatasetError, match=r"pip install 'evalcell\[arrow\]'"):
        read(FILES["rows.parquet"], "rows.parquet")


def test_rows_before_a_damaged_end_are_read(tmp_path):
    content = b"".join(b'{"n": %d}\n' % n for n in range(200_000))
    (tmp_path / "x.gz").write_bytes(gzipped(content)[:-100])
    seen = []
    with opened(str(tmp_path / "x.gz")) as rows, pytest.raises(DatasetError, match="cut off"):
        seen.extend(row.index for row in only_rows(rows))
    assert seen == list(range(len(seen)))
    assert len(seen) > 100_000


def test_progress_through_a_compressed_file_is_even(tmp_path):
    content = b"".join(b'{"n": %d}\n' % n for n in range(300_000))
    (tmp_path / "x.gz").write_bytes(gzipped(content))
    with opened(str(tmp_path / "x.gz")) as rows:
        list(only_rows(rows))
        for tenth in range(1, 10):
            assert rows.fraction(30_000 * tenth) == pytest.approx(tenth / 10, abs=0.05)


def test_a_mistyped_name_is_met_with_the_right_one(tmp_path):
    (tmp_path / "answers.csv").write_text("a\n1\n")
    with pytest.raises(DatasetError, match="Did you mean 'answers.csv'"), opened(str(tmp_path / "answers.cvs")):
        pass


def test_tables_that_arrow_cannot_hold_are_refused_with_the_reason():
    for odd in (pandas.DataFrame({"a": [1, "x", None]}), pandas.Series([1, 2]), polars.Series([1])):
        with pytest.raises(DatasetError, match="cannot be read as a table"):
            list(in_memory(odd))


def test_a_pipe_may_have_any_number(tmp_path):
    """`select` knows only the first 1,024 descriptors."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, 1500) if resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 1600 else reader
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)
    os.write(writer, JSONL)
    os.close(writer)
    assert values(only_rows(Dataset.from_stream(FileStream(high, "test"), "", None))) == ROWS
    for descriptor in {reader, high}:
        os.close(descriptor)


def test_large_rows_are_read_in_time_that_grows_with_their_size(read):
    """Nothing is looked at twice: 30 MB in one string, one line, one record."""
    text = "x" * 30_000_000
    assert len(read(json.dumps([{"a": text}]).encode(), "x.json")[0].text) > len(text)
    assert len(read(json.dumps({"a": text}).encode(), "x.jsonl")[0].text) > len(text)
    assert len(read(b'a\n"' + b"y\n" * 1_000_000 + b'"\n', "x.csv")[0].text) > 2_000_000
    columns = [f"c{n}" for n in range(20_000)]
    assert len(values(read(",".join(columns).encode() + b"\n" + b"," * 19_999 + b"\n", "x.csv"))[0]) == 20_000
