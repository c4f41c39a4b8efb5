"""What a dataset is written in: as it was told to be, by its name, or by how it begins."""

import codecs
from enum import StrEnum
from pathlib import PurePath

import msgspec

from evalcell.errors import DatasetError

PARQUET_MAGIC = b"PAR1"
_LOOKALIKES = {
    codecs.BOM_UTF16_LE: "UTF-16 text. Save it as UTF-8.",
    codecs.BOM_UTF16_BE: "UTF-16 text. Save it as UTF-8.",
    b"PK\x03\x04": "a zip archive or a workbook. Unpack it, or save it as CSV.",
    b"\x1f\x8b": "compressed twice. Unpack it once.",
    **{b"BZh%d1AY&SY" % level: "bzip2 data. Unpack it, or pack it with gzip or zstd." for level in range(1, 10)},
    b"\xfd7zXZ\x00": "xz data. Unpack it, or pack it with gzip or zstd.",
    b"ARROW1\0\0": "an Arrow file. Save it as Parquet.",
    b"Obj\x01": "an Avro file. Save it as Parquet or JSONL.",
}
"""What people take for a dataset that can be read, by how it begins."""
_TELLING_BYTES = 1024**2
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
    known = (b"[", b"{", PARQUET_MAGIC, *_LOOKALIKES)
    return b"\n" in content or content.startswith(known) or len(head) >= _TELLING_BYTES


def recognised(path: str, head: bytes) -> Format:
    """The format of a dataset that begins like this.

    Parquet says so itself. Names tell tables from JSON; within JSON, a bracket begins a list and all else is lines.
    """
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


def refuse_lookalikes(name: str, head: bytes) -> None:
    """Refuses what is known to be something else, whatever its name and its format are said to be.

    Raises:
        DatasetError: It is; the message says what, and what to do.
    """
    for magic, what in _LOOKALIKES.items():
        if head.startswith(magic):
            raise DatasetError(f"The dataset {name} is {what}")
