"""What the parent and a lane say to each other: msgpack messages, each behind its length, over a socket pair."""

import socket
import struct
from typing import Final

import msgspec
from msgspec import Struct

from evalcell.datasets import Row
from evalcell.plan import Plan
from evalcell.records import Aggregates
from evalcell.tally import Tally
from evalcell_sandboxes import Crashed, Description, Exceeded, Limits, Outcome, SyntaxProblem

_LENGTH: Final = struct.Struct("!I")
_CHUNK_BYTES = 256 * 1024

NOTHING: Final = b"null"
"""Stands for a value that the other side has no use for."""


class Begin(Struct, frozen=True, tag=True):
    """The first message to a lane: what the operator has configured about this machine. Not answered."""

    configuration: dict[str, str]


class Describe(Struct, frozen=True, tag=True):
    """Parse this source and say what it declares."""

    source: str
    limits: Limits
    sandbox: str


class Open(Struct, frozen=True, tag=True):
    """Load this plan's program."""

    plan: Plan


class Work(Struct, frozen=True, tag=True):
    """Take these rows to records. Answered by one or more `Done`, in the order of the rows."""

    rows: list[Row]


class RowsToFit(Struct, frozen=True, tag=True):
    """Bind these rows and keep their arguments for `Fit`. Answered by `More`, or by `Fitted` if they are too many."""

    rows: list[Row]


class Fit(Struct, frozen=True, tag=True):
    """Call `fit` with the rows that were sent."""


class ResultsToAggregate(Struct, frozen=True, tag=True):
    """Keep this part of the results for `Aggregate`. Answered by `More`."""

    part: bytes


class Aggregate(Struct, frozen=True, tag=True):
    """Call `aggregate` with the results that were sent."""


class SyntaxFailed(Struct, frozen=True, tag=True):
    """Answers `Describe` for a source that does not parse."""

    problem: SyntaxProblem


class Described(Struct, frozen=True, tag=True):
    """Answers `Describe`."""

    description: Description


class NotDescribed(Struct, frozen=True, tag=True):
    """Answers `Describe` for a source that could not be parsed within bounds."""

    outcome: Exceeded | Crashed


class Opened(Struct, frozen=True, tag=True):
    """Answers `Open`: what came of loading the module."""

    loaded: Outcome


class More(Struct, frozen=True, tag=True):
    """The next part may come. A lane asks for each, so that nothing piles up before it.

    `malformed` says which rows of the last part were none.
    """

    malformed: list[str] = []


class Fitted(Struct, frozen=True, tag=True):
    """Answers `Fit`: what came of it, and how many rows could not be bound and were left out."""

    outcome: Outcome
    left_out: int


class Aggregated(Struct, frozen=True, tag=True):
    """Answers `Aggregate`."""

    aggregates: Aggregates


class Done(Struct, frozen=True, tag=True):
    """The records of the next rows, each row's as finished JSON lines, and what they add to the tally.

    `results` holds what `aggregate` will be given of each row; it is empty where nobody aggregates.
    """

    rows: list[bytes]
    tally: Tally
    malformed: list[str] = []
    results: list[bytes] = []


class Faulted(Struct, frozen=True, tag=True):
    """The machinery around the guest failed. The lane is of no more use."""

    message: str
    unavailable: str | None = None


ToLane = Begin | Describe | Open | RowsToFit | Fit | Work | ResultsToAggregate | Aggregate
FromLane = Described | SyntaxFailed | NotDescribed | Opened | More | Fitted | Done | Aggregated | Faulted

encode = msgspec.msgpack.Encoder().encode
decode_to_lane = msgspec.msgpack.Decoder(ToLane).decode
decode_from_lane = msgspec.msgpack.Decoder(FromLane).decode


def send(connection: socket.socket, message: ToLane | FromLane) -> None:
    """Sends one message whole."""
    body = encode(message)
    connection.sendall(_LENGTH.pack(len(body)) + body)


class Frames:
    """Cuts what arrives into messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # Kept, because a new one for each call would be mapped, and unmapped from under every thread, by the kernel.
        self._chunk = memoryview(bytearray(_CHUNK_BYTES))
        self._pending = bytearray()

    def receive(self) -> list[bytes] | None:
        """Waits for bytes and gives the messages they complete, maybe none; None when the other side is gone."""
        try:
            size = self._connection.recv_into(self._chunk)
        except ConnectionError:
            return None
        if not size:
            return None
        self._pending += self._chunk[:size]
        bodies = []
        while len(self._pending) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._pending)
            end = _LENGTH.size + size
            if len(self._pending) < end:
                break
            bodies.append(bytes(self._pending[_LENGTH.size : end]))
            del self._pending[:end]
        return bodies
