"""What is written for each row and score: one record, whatever happened."""

from typing import Any, Literal

import msgspec
from msgspec import Struct

from evalcell_sandboxes import Usage

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


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Record).decode
