"""What travels between the host and the supervisor, and between the supervisor and the processes that hold user code.

The host sends frames: a length, a command, a body. What comes back, over both hops, is records: a header, a report,
and what was printed. The host imports this file too.
"""

import os
import struct

LENGTH = struct.Struct("!I")
RECORD = struct.Struct("!BddQIII")
"""Kind, wall seconds, CPU seconds, peak of memory in bytes; then how long the report, stdout and stderr are."""

LOAD, FIT, ROWS, BATCH, AGGREGATE, DESCRIBE, RENEW = b"L", b"F", b"R", b"B", b"A", b"D", b"X"
KEEP = b"K"
"""The commands. `RENEW` has no answer, rows are answered by a record each, the others by one. `KEEP` is for the zygote."""

REPORTED, EXCEEDED, CRASHED, FORGED, LOST = range(5)
"""The kinds of records. A report is the guest's word; the others are the supervisor's, and their report says why.

`LOST` ends an answer: this and what would have come after it was not run, because there is nothing to run it in.
"""


def record(
    kind: int,
    report: bytes,
    wall: float = 0.0,
    cpu: float = 0.0,
    memory: int = 0,
    stdout: bytes = b"",
    stderr: bytes = b"",
) -> bytes:
    return RECORD.pack(kind, wall, cpu, memory, len(report), len(stdout), len(stderr)) + report + stdout + stderr


def frame(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def read_frame(descriptor: int) -> bytearray:
    """The next body, and not a byte further; nothing when the other side is gone."""
    size = _read(descriptor, LENGTH.size)
    return size and _read(descriptor, *LENGTH.unpack(size))


def _read(descriptor: int, size: int) -> bytearray:
    """Reads into one piece of memory: bodies may be as large as the sandbox allows, and hardly be held twice."""
    body = bytearray(size)
    room = memoryview(body)
    while room:
        read = os.readv(descriptor, [room[: 1 << 20]])
        if not read:
            return bytearray()
        room = room[read:]
    return body


def write(descriptor: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
