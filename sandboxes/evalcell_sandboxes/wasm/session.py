"""Runs a program in instances of the guest, under deadlines, and decodes what comes back as hostile bytes."""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Raw as RawJson
from msgspec import Struct

from evalcell_sandboxes.nesting import MOST_LEVELS, too_deep
from evalcell_sandboxes.outcome import Exceeded, Invalid, Outcome, Raised, Returned, Usage
from evalcell_sandboxes.program import Confinement, Isolation, Program
from evalcell_sandboxes.sandbox import Raw, Session
from evalcell_sandboxes.wasm.guests import Answered, Guest, Output, Report

_ROWS_A_CALL = 512
_MOST_FAILED_LOADS = 3
_RESERVE_BYTES = 32 * 1024**2
"""Memory that is free when a row starts: rows that use no more of it can be undone."""
# The guest keeps to its limits, but hostile code can write the guest's reports: the host cuts them once more.
_NAME_CHARACTERS = 200
_MESSAGE_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 16_000
_NOTE_CHARACTERS = 100
_ESCAPED_BYTE_CHARACTERS = 4


class _Report(Struct):
    """What the guest says about a call. Written by the author of the evaluator, if it comes to that."""

    kind: Literal["returned", "raised", "exceeded", "invalid"] = "returned"
    value: RawJson = RawJson(b"null")
    type: str = ""
    message: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""


_decode_report = msgspec.json.Decoder(_Report).decode
_decode_reports = msgspec.json.Decoder(_Report).decode_lines


class WasmSession(Session):
    """A program loaded into the guest.

    Under `row` isolation the instance is put back after every row to what it was when the module had been executed, or
    replaced by a new one in that state, so that nothing a row did can reach the next. Under `evaluator` isolation one
    instance serves all rows until it traps.
    """

    def __init__(self, guest: Guest, program: Program, confinement: Confinement) -> None:
        self._guest = guest
        self._source = program.source.encode()
        self._filename = program.filename
        self._limits = confinement.limits
        self._plain_bytes = min(confinement.limits.result_bytes, MOST_LEVELS)
        self._fresh_rows = confinement.isolation is Isolation.ROW
        self._rows_a_call = 1 if self._fresh_rows else _ROWS_A_CALL
        self._seed_number = confinement.seed
        self._seed_key = confinement.seed.to_bytes(8, "big")
        self._fitted_on: bytes | None = None
        self._code = ""
        self._failed_loads = 0
        self._loaded = self._load()
        if self._fresh_rows and isinstance(self._loaded, Returned):
            if self._code:  # once more, from it, as in every later instance: rows in the first are no different
                self._loaded = self._load()
            self._loaded = self._checked(self._settled(self._loaded))

    @property
    def loaded(self) -> Outcome:
        return self._loaded

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        self._fitted_on = b"\n".join(row.replace(b"\n", b" ") for row in rows)
        unspoilt = self._fresh_rows and self._guest.alive and isinstance(self._loaded, Returned)
        if unspoilt:  # no row has left anything, so there is no need to load the module again
            return self._checked(self._fit())
        return self._renew()

    def bursts(self, rows: Sequence[Raw]) -> Iterator[list[Outcome]]:
        done = 0
        while done < len(rows):
            ready = self._ready()
            outcomes: list[Outcome] = [ready]
            if isinstance(ready, Returned):
                outcomes = self._run_some(rows[done : done + self._rows_a_call])
            done += len(outcomes)
            yield outcomes

    def aggregate(self, results: Raw) -> Outcome:
        ready = self._ready() if self._fresh_rows else self._renew()
        if not isinstance(ready, Returned):
            return ready
        outcome = self._call("hook", b"aggregate", results, limit="aggregate_seconds", most=self._limits.result_bytes)
        if self._fresh_rows:
            self._guest.close()
        return outcome

    def _run_some(self, rows: Sequence[Raw]) -> list[Outcome]:
        """Runs rows in one call, and gives the outcomes of those that got one, at least of the first."""
        try:
            return self._outcomes([row.replace(b"\n", b" ") for row in rows])  # a line feed is what is between rows
        finally:
            if self._fresh_rows:  # before the outcome goes out: whoever takes it may never come back for another
                self._guest.restore()

    def _outcomes(self, rows: list[bytes]) -> list[Outcome]:
        answered = self._guest.run(rows, self._seed)
        count = answered.text.count(b"\n")
        if count > len(rows) or not (count or answered.ended):
            usage = self._guest.usage() if self._fresh_rows else Usage()  # of many rows, nobody knows whose it is
            self._guest.close()
            return [Invalid(message="the code made up reports of its own", usage=usage)] * len(rows)
        outcomes = self._read_all(answered, count)
        if answered.ended is not None:
            return [*(outcomes[:-1] if answered.ended_after_the_last else outcomes), answered.ended]
        return outcomes

    def _seed(self, row: bytes) -> int:
        """What randomness in a row comes from. The guest reckons the same for `random`, when it is asked for any."""
        return int.from_bytes(blake2b(row, digest_size=8, key=self._seed_key).digest(), "big")

    def _ready(self) -> Outcome:
        """Sees to it that there is an instance to run in."""
        return self._loaded if self._guest.alive else self._renew()

    def _renew(self) -> Outcome:
        """A new instance with the module executed, and fitted where `fit` was called.

        A module that loaded once and then fails again and again is given up on: it must not cost its limit a row.
        """
        if self._failed_loads >= _MOST_FAILED_LOADS:
            return self._loaded
        ready = self._settled(self._load())
        if self._fitted_on is not None and isinstance(ready, Returned):
            ready = self._fit()
        return self._checked(ready)

    def _fit(self) -> Outcome:
        fitted = self._call("hook", b"fit", self._fitted_on or b"", limit="fit_seconds")
        return self._settled(fitted, limit="fit_seconds")

    def _checked(self, ready: Outcome) -> Outcome:
        """Has rows start from that state, if they can."""
        if isinstance(ready, Returned):
            self._failed_loads = 0
            if self._fresh_rows:
                self._guest.remember()
            return ready
        self._guest.close()  # nothing may run in what was only half made
        self._failed_loads += 1
        self._loaded = ready if self._failed_loads >= _MOST_FAILED_LOADS else self._loaded
        return ready

    def _settled(self, ready: Outcome, limit: str = "load_seconds") -> Outcome:
        """Where rows start fresh, tidies up after what was executed; gives what came of both."""
        if not self._fresh_rows or not isinstance(ready, Returned):
            return ready
        reserve = str(_RESERVE_BYTES).encode()
        settled = self._guest.call("settle", reserve, limit=limit, seed=self._seed_number)
        return ready if isinstance(settled, Report) else settled

    def _load(self) -> Outcome:
        self._guest.renew()
        outcome = self._call("load", self._source, self._make_settings(), limit="load_seconds")
        if isinstance(outcome, Returned) and not self._code:
            # Compiled code goes back to the guest that made it and is never looked into on this side.
            try:
                self._code = msgspec.json.decode(outcome.value, type=str)
            except msgspec.DecodeError:
                return Invalid(message="the module meddled with the guest that loads it")
        return outcome

    def _make_settings(self) -> bytes:
        settings = {
            "filename": self._filename,
            "stdout_bytes": self._limits.stdout_bytes,
            "stderr_bytes": self._limits.stderr_bytes,
            "result_bytes": self._limits.result_bytes,
            "answer_bytes": self._guest.answer_bytes,
            "seed": self._seed_number,
            "code": self._code,
        }
        return json.dumps(settings).encode()

    def _call(self, export: str, *arguments: bytes, limit: str, most: int | None = None) -> Outcome:
        answer = self._guest.call(export, *arguments, limit=limit, seed=self._seed_number)
        return self._read(answer, most) if isinstance(answer, Report) else answer

    def _read_all(self, answered: Answered, count: int) -> list[Outcome]:
        """Reads the reports of many rows, each on a line: all at once where all are well-formed."""
        try:
            reports = _decode_reports(answered.text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            reports = []
        if len(reports) != count:
            reports = [self._decode(line) for line in answered.text.split(b"\n")[:-1]]
        missing = len(reports) - len(answered.usages)
        usages = answered.usages + [Usage()] * missing if missing > 0 else answered.usages
        most = self._limits.result_bytes
        outcomes = [self._outcome(report, usage, most) for report, usage in zip(reports, usages, strict=False)]
        for row, output in answered.outputs.items():
            if row < len(outcomes):
                outcomes[row] = self._with_output(outcomes[row], output)
        return outcomes

    def _read(self, report: Report, most: int | None) -> Outcome:
        """Reads the report of one call."""
        outcome = self._outcome(self._decode(report.text), report.usage, most)
        return outcome if report.output is None else self._with_output(outcome, report.output)

    def _with_output(self, outcome: Outcome, output: Output) -> Outcome:
        stdout, stderr = (text.decode("utf-8", "backslashreplace") for text in output)
        return msgspec.structs.replace(
            outcome,
            stdout=(outcome.stdout + stdout)[: self._limits.stdout_bytes],
            stderr=(outcome.stderr + stderr)[: self._limits.stderr_bytes],
        )

    def _decode(self, text: bytes) -> _Report:
        """Anything that is not a well-formed report is the report of a result that cannot be used."""
        if len(text) > self._guest.most_report_bytes:
            return _Report("invalid", message="the guest reported more than it may")
        try:
            return _decode_report(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _Report("invalid", message=f"the guest's report cannot be read: {error}"[:500])

    def _outcome(self, report: _Report, usage: Usage, most: int | None) -> Outcome:
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


def _unusable(value: bytes, most: int | None) -> str:
    """Why a value cannot be used, if it cannot."""
    if most is not None and len(value) > most:
        return f"evaluate returned {len(value)} bytes of JSON; the limit is {most} (result_bytes)"
    return f"evaluate returned a value that is nested more than {MOST_LEVELS} levels deep" if too_deep(value) else ""


def _cut(text: str, most_bytes: int) -> str:
    """The text, as long as so many bytes and the note that there were more can be when they are spelled out."""
    return text[: most_bytes * _ESCAPED_BYTE_CHARACTERS + _NOTE_CHARACTERS]
