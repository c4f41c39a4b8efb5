"""Runs a program in instances of the guest, under deadlines, and decodes what comes back as hostile bytes."""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec
from msgspec import Raw as RawJson
from msgspec import Struct

from evalcell_sandboxes.outcome import Exceeded, Invalid, Outcome, Raised, Returned
from evalcell_sandboxes.program import Confinement, Isolation, Program
from evalcell_sandboxes.sandbox import Raw, Session
from evalcell_sandboxes.wasm.guests import Guest

# What a report may weigh beyond the result, the prints and the code: a message and a traceback.
_REPORT_OVERHEAD_BYTES = 256 * 1024


class _Report(Struct):
    """What the guest says about a call. Written by the author of the evaluator, if it comes to that."""

    kind: Literal["returned", "raised", "exceeded", "invalid"]
    value: RawJson = RawJson(b"null")
    type: str = ""
    message: str = ""
    traceback: str = ""
    stdout: str = ""
    stderr: str = ""


_decode_report = msgspec.json.Decoder(_Report).decode


class WasmSession(Session):
    """A program loaded into the guest.

    Under `row` isolation every row gets a new instance with the module executed anew, so that nothing a row did can
    reach the next. Under `evaluator` isolation one instance serves all rows until it traps.
    """

    def __init__(self, guest: Guest, program: Program, confinement: Confinement) -> None:
        self._guest = guest
        self._source = program.source.encode()
        self._filename = program.filename
        self._limits = confinement.limits
        self._fresh_rows = confinement.isolation is Isolation.ROW
        self._seed_key = confinement.seed.to_bytes(8, "big")
        self._fitted_on: bytes | None = None
        self._code = ""
        self._settings = self._make_settings()
        # Escaping makes a byte of output six bytes of JSON at worst; compiled code is a few times its source.
        printed = 6 * (self._limits.stdout_bytes + self._limits.stderr_bytes)
        self._most_answer_bytes = printed + self._limits.result_bytes + 20 * len(self._source) + _REPORT_OVERHEAD_BYTES
        self._loaded = self._load()

    @property
    def loaded(self) -> Outcome:
        return self._loaded

    def fit(self, rows: Sequence[Raw]) -> Outcome:
        self._fitted_on = b"[" + b",".join(rows) + b"]"
        return self._renew()

    def run(self, rows: Sequence[Raw]) -> Iterator[Outcome]:
        for row in rows:
            yield self._run(row)
            if self._fresh_rows:
                self._guest.close()

    def aggregate(self, results: Raw) -> Outcome:
        ready = self._renew()
        if not isinstance(ready, Returned):
            return ready
        return self._call("hook", b"aggregate", results, limit="aggregate_seconds")

    def _run(self, row: Raw) -> Outcome:
        if not self._guest.alive:
            ready = self._renew()
            if not isinstance(ready, Returned):
                return ready
        seed = int.from_bytes(blake2b(row, digest_size=8, key=self._seed_key).digest(), "big")
        return self._call("run", row, seed, limit="wall_seconds", seed=seed)

    def _renew(self) -> Outcome:
        """A new instance with the module executed, and fitted where `fit` was called."""
        ready = self._load()
        if self._fitted_on is None or not isinstance(ready, Returned):
            return ready
        return self._call("hook", b"fit", self._fitted_on, limit="fit_seconds")

    def _load(self) -> Outcome:
        self._guest.renew()
        outcome = self._call("load", self._source, self._settings, limit="load_seconds")
        if isinstance(outcome, Returned) and not self._code:
            # Compiled code goes back to the guest that made it and is never looked into on this side.
            self._code = msgspec.json.decode(outcome.value, type=str)
            self._settings = self._make_settings()
        return outcome

    def _make_settings(self) -> bytes:
        settings = {
            "filename": self._filename,
            "stdout_bytes": self._limits.stdout_bytes,
            "stderr_bytes": self._limits.stderr_bytes,
            "result_bytes": self._limits.result_bytes,
            "seed": int.from_bytes(self._seed_key, "big"),
            "code": self._code,
        }
        return json.dumps(settings).encode()

    def _call(self, export: str, *arguments: bytes | int, limit: str, seed: int = 0) -> Outcome:
        answer = self._guest.call(export, *arguments, seed=seed, limit=limit)
        if not isinstance(answer, bytes):
            return answer
        outcome = self._read(answer)
        if (raw := self._guest.take_output()) is not None:
            outcome = msgspec.structs.replace(
                outcome,
                stdout=outcome.stdout + raw[0].decode("utf-8", "backslashreplace"),
                stderr=outcome.stderr + raw[1].decode("utf-8", "backslashreplace"),
            )
        return outcome

    def _read(self, answer: bytes) -> Outcome:
        """Decodes a report. Anything that is not a well-formed one is a result that cannot be used."""
        usage = self._guest.usage
        if len(answer) > self._most_answer_bytes:
            return Invalid(message=f"the guest answered with {len(answer)} bytes", usage=usage)
        try:
            report = _decode_report(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return Invalid(message=f"the guest's report cannot be read: {error}"[:500], usage=usage)
        stdout, stderr = report.stdout, report.stderr
        match report.kind:
            case "returned":
                return Returned(value=bytes(report.value), stdout=stdout, stderr=stderr, usage=usage)
            case "raised":
                return Raised(
                    exception=report.type,
                    message=report.message,
                    traceback=report.traceback,
                    stdout=stdout,
                    stderr=stderr,
                    usage=usage,
                )
            case "exceeded":
                return Exceeded(limit="memory_bytes", message=report.message, stdout=stdout, stderr=stderr, usage=usage)
            case "invalid":
                return Invalid(message=report.message, stdout=stdout, stderr=stderr, usage=usage)
