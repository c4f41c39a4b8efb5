"""What is written for each row and score: one record, whatever happened."""

from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct

from evalcell_sandboxes import Crashed, Exceeded, Failure, Invalid, Raised, Usage

Status = Literal["scored", "skipped", "failed"]
Kind = Literal["syntax", "signature", "binding", "raised", "exceeded", "crashed", "invalid_result", "infrastructure"]


class Error(Struct, frozen=True, gc=False):
    """Why a row failed. `limit` says which one where the kind is `exceeded`."""

    kind: Kind
    message: str
    traceback: str = ""
    limit: str | None = None


class Record(Struct, frozen=True, gc=False):
    """One score of one row. Failed, skipped and 0.0 are three different things."""

    row: int
    id: str | int
    evaluator: str
    name: str
    version: str
    sandbox: str
    status: Status
    score: float | None = None
    label: str | None = None
    passed: bool | None = None
    explanation: str | None = None
    metadata: dict[str, Any] | None = None
    error: Error | None = None
    stdout: str = ""
    stderr: str = ""
    usage: Usage | None = None


class Result(Struct, frozen=True):
    """What `aggregate` is given of a score."""

    row: int
    id: str | int
    name: str
    score: float | None
    label: str | None
    metadata: dict[str, Any] | None


Number = int | float | None


class Aggregates(Struct, frozen=True):
    """What `aggregate` came to: numbers by name, None for one that is undefined; or why there are none.

    What it printed is kept where it failed.
    """

    numbers: dict[str, Number] = {}
    error: Error | None = None
    stdout: str = ""
    stderr: str = ""


_encoder = msgspec.json.Encoder()
encode, encode_lines = _encoder.encode, _encoder.encode_lines
decode = msgspec.json.Decoder(Record).decode


def result_of(record: Record) -> bytes:
    """A record's `Result`, as JSON."""
    return encode(Result(record.row, record.id, record.name, record.score, record.label, record.metadata))


def error_of(outcome: Failure) -> Error:
    """The error that an outcome means for what was called."""
    match outcome:
        case Raised(exception=exception, message=message, traceback=traceback):
            return Error("raised", f"{exception}: {message}" if message else exception, traceback)
        case Exceeded(limit=limit, message=message):
            return Error("exceeded", message, limit=limit)
        case Crashed(message=message):
            return Error("crashed", message)
        case Invalid(message=message):
            return Error("invalid_result", message)
    assert_never(outcome)
