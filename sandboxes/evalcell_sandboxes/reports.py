"""Reads what a guest says about a call, as the hostile bytes that it is."""

from typing import Literal

import msgspec
from msgspec import Raw as RawJson
from msgspec import Struct

from evalcell_sandboxes.description import Description, SyntaxProblem
from evalcell_sandboxes.nesting import MOST_LEVELS, too_deep
from evalcell_sandboxes.outcome import Crashed, Exceeded, Invalid, Outcome, Raised, Returned, Usage
from evalcell_sandboxes.program import Limits

# The guest keeps to its limits, but hostile code can write the guest's reports: the host cuts them once more.
_NAME_CHARACTERS = 200
_MESSAGE_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 16_000
_NOTE_CHARACTERS = 100
_ESCAPED_BYTE_CHARACTERS = 4
# What a report may weigh beyond the result and the prints: compiled code up to a size, a message and a traceback.
_CODE_BYTES = 1024**2
_MESSAGE_BYTES = 256 * 1024


class Report(Struct):
    """What the guest says about a call. Written by the author of the evaluator, if it comes to that."""

    kind: Literal["returned", "raised", "exceeded", "invalid"] = "returned"
    value: RawJson = RawJson(b"null")
    type: str = ""
    message: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    """How long the call took, where the guest says so itself."""


_decode = msgspec.json.Decoder(Report).decode
_decode_lines = msgspec.json.Decoder(Report).decode_lines


def most_report_bytes(limits: Limits) -> int:
    """What a report can weigh under these limits. Escaping makes a byte of output six bytes of JSON at worst."""
    printed = 6 * (limits.stdout_bytes + limits.stderr_bytes)
    return printed + max(limits.result_bytes, _CODE_BYTES) + _MESSAGE_BYTES


class Reports:
    """Makes outcomes of reports under some limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most_bytes = most_report_bytes(limits)
        self._plain_bytes = min(limits.result_bytes, MOST_LEVELS)

    def decode(self, text: bytes) -> Report:
        """Anything that is not a well-formed report is the report of a result that cannot be used."""
        if len(text) > self._most_bytes:
            return Report("invalid", message="the guest reported more than it may")
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Report("invalid", message=f"the guest's report cannot be read: {error}"[:500])

    def decode_lines(self, text: bytes, count: int) -> list[Report]:
        """So many reports, each on a line: all at once where all are well-formed."""
        try:
            reports = _decode_lines(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            reports = []
        if len(reports) == count:
            return reports
        return [self.decode(line) for line in text.split(b"\n")[:-1]]

    def outcome(self, report: Report, usage: Usage, most: int | None) -> Outcome:
        """What a report means. A value of more bytes than `most` is none; without it, its report's size bounds it."""
        if (
            report.kind == "returned"
            and len(report.value) <= self._plain_bytes
            and not (report.stdout or report.stderr)
        ):
            return Returned(value=bytes(report.value), usage=usage)
        stdout = _cut(report.stdout, self._limits.stdout_bytes)
        stderr = _cut(report.stderr, self._limits.stderr_bytes)
        message = report.message[:_MESSAGE_CHARACTERS]
        if report.kind == "returned":
            value = bytes(report.value)
            message = _unusable(value, most)
            if not message:
                return Returned(value=value, stdout=stdout, stderr=stderr, usage=usage)
        if report.kind == "raised":
            return Raised(
                exception=report.type[:_NAME_CHARACTERS],
                message=message,
                traceback=report.traceback[-_TRACEBACK_CHARACTERS:],
                stdout=stdout,
                stderr=stderr,
                usage=usage,
            )
        if report.kind == "exceeded":
            return Exceeded(limit="memory_bytes", message=message, stdout=stdout, stderr=stderr, usage=usage)
        return Invalid(message=message, stdout=stdout, stderr=stderr, usage=usage)

    def with_output(self, outcome: Outcome, output: tuple[bytes, bytes]) -> Outcome:
        """The outcome with what went to stdout and stderr besides, as far as there is room for that too."""
        stdout, stderr = (text.decode("utf-8", "backslashreplace") for text in output)
        return msgspec.structs.replace(
            outcome,
            stdout=outcome.stdout + stdout[: max(0, self._limits.stdout_bytes - len(outcome.stdout))],
            stderr=outcome.stderr + stderr[: max(0, self._limits.stderr_bytes - len(outcome.stderr))],
        )


def _unusable(value: bytes, most: int | None) -> str:
    """Why a value cannot be used, if it cannot."""
    if most is not None and len(value) > most:
        return f"evaluate returned {len(value)} bytes of JSON; the limit is {most} (result_bytes)"
    return f"evaluate returned a value that is nested more than {MOST_LEVELS} levels deep" if too_deep(value) else ""


def _cut(text: str, most_bytes: int) -> str:
    """The text, as long as so many bytes and the note that there were more can be when they are spelled out."""
    return text[: most_bytes * _ESCAPED_BYTE_CHARACTERS + _NOTE_CHARACTERS]


# -- descriptions ---------------------------------------------------------------------------------------------------
class _Described(Struct):
    syntax_error: SyntaxProblem


def unparsable(source: str, limits: Limits) -> SyntaxProblem | Exceeded | None:
    """Why a source need not be parsed at all, if so."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        return SyntaxProblem("the source holds a lone surrogate, which no encoding can hold")
    if size <= limits.source_bytes:
        return None
    return Exceeded(limit="source_bytes", message=f"the source has {size} bytes of {limits.source_bytes} allowed")


def described(answer: bytes, limits: Limits) -> Description | SyntaxProblem | Exceeded | Crashed:
    """What the guest says that a source declares."""
    if len(answer) > most_report_bytes(limits):
        return Exceeded(limit="source_bytes", message="the source declares more than can be described")
    if too_deep(answer):
        return Exceeded(limit="stack", message="the metadata of the source is nested too deeply")
    try:
        if answer.startswith(b'{"syntax_error"'):
            return msgspec.json.decode(answer, type=_Described).syntax_error
        return msgspec.json.decode(answer, type=Description)
    except (msgspec.DecodeError, RecursionError) as error:
        return Crashed(message=f"the guest's description cannot be read: {error}"[:500])
