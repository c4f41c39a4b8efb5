"""Numbers about all results together: what `aggregate` is given, and what may come back from it."""

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import msgspec

from evalcell.errors import OutputError
from evalcell.records import Aggregates, Error, Number, error_of
from evalcell.scoring import InvalidResult, shown
from evalcell.spool import Spool
from evalcell_sandboxes import Exceeded, Failure, Invalid, Outcome, Returned

_MOST_NAMES = 100
_MOST_NAME_CHARACTERS = 200
_LARGEST_INTEGER = 2**63
_PIECE_BYTES = 256 * 1024
_value = msgspec.json.Decoder().decode


class Results(AbstractContextManager["Results"]):
    """The results of the scored rows, in order, kept for `aggregate` as the JSON that the lanes have made of them."""

    def __init__(self, most_bytes: int) -> None:
        self._spool = Spool()
        self._most_bytes = most_bytes
        self.error: Error | None = None
        """Why they could not be kept. The rows go on all the same."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._spool.__exit__(kind, error, trace)

    def add(self, results: Sequence[bytes]) -> None:
        """Keeps the results of some rows; a row without a score has none."""
        piece = b",".join(filter(None, results))
        if not piece or self.error is not None:
            return
        if self._spool.size_bytes + len(piece) > self._most_bytes:
            self.error = _too_many(self._most_bytes)
            return
        try:
            self._spool.append(piece)
        except OutputError as error:
            self.error = Error("infrastructure", str(error))

    def pieces(self) -> Iterator[bytes]:
        """Parts of a JSON list, to be put together with commas."""
        some: list[bytes] = []
        size = 0
        for piece in self._spool.pieces():
            some.append(piece)
            size += len(piece)
            if size > _PIECE_BYTES:
                yield b",".join(some)
                some, size = [], 0
        if some:
            yield b",".join(some)


def _too_many(most_bytes: int) -> Error:
    return Error(
        "exceeded",
        f"the results for aggregate have more than {most_bytes:,} bytes, the limit memory_bytes. "
        "Raise it with --limit memory_bytes=SIZE, or return less metadata",
        limit="memory_bytes",
    )


def aggregates_of(outcome: Outcome, evaluator: str) -> Aggregates:
    """What came of calling `aggregate`: numbers, if it gave any. A bare number has the evaluator's name."""
    if not isinstance(outcome, Returned):
        return _failed(_error(outcome), outcome)
    try:
        value = _value(outcome.value)
        return Aggregates(_numbers(value if isinstance(value, dict) else {evaluator: _bare(value)}))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _failed(Error("invalid_result", f"what aggregate returned cannot be read: {error}"), outcome)
    except InvalidResult as invalid:
        return _failed(Error("invalid_result", str(invalid)), outcome)


def _failed(error: Error, outcome: Outcome) -> Aggregates:
    return Aggregates(error=error, stdout=outcome.stdout, stderr=outcome.stderr)


def _bare(value: Any) -> Any:
    if value is None:
        raise InvalidResult("aggregate returned nothing: did you forget return? Return numbers by name: {'f1': 0.5}")
    if not isinstance(value, int | float):
        raise InvalidResult(f"aggregate returned {shown(value)}; return a number, or an object of numbers by name")
    return value


def _numbers(named: dict[str, Any]) -> dict[str, Number]:
    if len(named) > _MOST_NAMES:
        raise InvalidResult(f"aggregate returned {len(named)} numbers; {_MOST_NAMES} are allowed")
    return {_name(name): _number(value, name) for name, value in named.items()}


def _name(name: str) -> str:
    if len(name) > _MOST_NAME_CHARACTERS:
        raise InvalidResult(f"aggregate returned a name of {len(name)} characters; {_MOST_NAME_CHARACTERS} are allowed")
    return name


def _number(value: Any, name: str) -> Number:
    """An integer stays one as long as other programs can read it; what is larger goes as a float."""
    if value is not None and not isinstance(value, int | float):
        raise InvalidResult(
            f"aggregate returned {shown(value)} as {shown(name)}; each value is a number, or None (null)"
        )
    if value is None:
        return None
    if isinstance(value, int) and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return int(value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidResult(f"aggregate returned a number as {shown(name)} that is too large for a float")
    return number


def _error(outcome: Failure) -> Error:
    error = error_of(outcome)
    if isinstance(outcome, Exceeded) and outcome.limit != "stack":
        message = f"{error.message} ({outcome.limit}). Raise it with --limit {outcome.limit}=N"
        return msgspec.structs.replace(error, message=message)
    if isinstance(outcome, Invalid):
        return msgspec.structs.replace(error, message=_reworded(error.message))
    return error


def _reworded(message: str) -> str:
    """Guests word what is invalid for the hook that is called most."""
    message = message.replace("evaluate returned", "aggregate returned", 1)
    undefined = message.startswith(("aggregate returned NaN", "aggregate returned infinity", "aggregate returned -inf"))
    return f"{message}; return None (null) for a number that is undefined" if undefined else message
