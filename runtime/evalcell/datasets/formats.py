"""What a dataset is written in: as it was told to be, by its name, or by how it begins."""

import codecs
from enum import StrEnum
from pathlib import PurePath

import msgspec

from evalcell.datasets.row import MOST_BYTES
from evalcell.errors import DatasetError

PARQUET_MAGIC = b"PAR1"
_ZIP_MAGIC = b"PK\x03\x04"
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COMPRESSED = (".gz", ".gzip", ".zst", ".zstd")
_DELIMITERS = (b",", b";", b"\t")


class Format(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    JSON = "json"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"


_BY_SUFFIX = {
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".tab": Format.TSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
}


def tells(head: bytes) -> bool:
    """Whether so much of a dataset is enough to tell its format: a whole line, with something in it."""
    content = head.removeprefix(codecs.BOM_UTF8).lstrip()
    return b"\n" in content or content.startswith((b"[", b"{", PARQUET_MAGIC)) or len(head) >= MOST_BYTES


def recognised(path: str, head: bytes) -> Format:
    """The format of a dataset that begins like this.

    Parquet says so itself. Names tell tables from JSON; within JSON, a bracket begins a list and all else is lines.

    Raises:
        DatasetError: It is something that people take for a dataset, but which is none.
    """
    _refuse_lookalikes(path, head)
    if head.startswith(PARQUET_MAGIC):
        return Format.PARQUET
    named = _by_name(path)
    if named not in (None, Format.JSON, Format.JSONL):
        return named
    content = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if content.startswith(b"["):
        return Format.JSON
    return Format.JSONL if named or not _looks_like_a_header(content) else Format.CSV


def _by_name(path: str) -> Format | None:
    name = PurePath(path)
    if name.suffix.lower() in _COMPRESSED:
        name = name.with_suffix("")
    return _BY_SUFFIX.get(name.suffix.lower())


def _looks_like_a_header(content: bytes) -> bool:
    line = content.partition(b"\n")[0]
    if line.startswith(b"{") or not any(delimiter in line for delimiter in _DELIMITERS):
        return False
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
    return False


def _refuse_lookalikes(path: str, head: bytes) -> None:
    if head.startswith(_UTF_16):
        raise DatasetError(f"The dataset {path!r} is UTF-16 text. Save it as UTF-8.")
    if head.startswith(_ZIP_MAGIC):
        raise DatasetError(f"The dataset {path!r} is a zip archive or a workbook. Unpack it, or save it as CSV.")
